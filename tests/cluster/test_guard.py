"""Two runs of these tests at once do not end one another: the second says that there is a first."""

from collections.abc import Iterator

import pytest
from cluster_guard import LEASES, NAME, ClusterTakenError, Guard
from fake_kubernetes import Fake, fake_kubernetes


@pytest.fixture
def fake() -> Iterator[Fake]:
    with fake_kubernetes() as server:
        yield server


def holders(fake: Fake) -> list[str]:
    return [each["spec"]["holderIdentity"] for each in fake.all("leases")]


def test_a_second_run_is_told_of_the_first_and_takes_nothing(fake: Fake) -> None:
    first = Guard(fake.client(), "one process 1")
    second = Guard(fake.client(), "other process 2", pause=lambda _: first.renew())
    first.take()
    with pytest.raises(ClusterTakenError, match="already \\(one process 1\\)"):
        second.take()
    assert holders(fake) == ["one process 1"]


def test_a_run_that_has_ended_leaves_the_cluster_to_the_next(fake: Fake) -> None:
    first, second = Guard(fake.client(), "one"), Guard(fake.client(), "other")
    first.take()
    first.release()
    second.take()
    assert holders(fake) == ["other"]


def test_a_run_that_ends_while_the_next_looks_leaves_the_cluster_to_it(fake: Fake) -> None:
    first = Guard(fake.client(), "one")
    first.take()
    Guard(fake.client(), "other", pause=lambda _: first.release()).take()
    assert holders(fake) == ["other"]


def test_a_run_that_was_killed_holds_up_nobody_for_ever(fake: Fake) -> None:
    killed, looks = Guard(fake.client(), "killed"), list[float]()
    killed.take()
    Guard(fake.client(), "next", pause=looks.append).take()
    assert sum(looks) == 60.0
    killed.renew()  # it was only stopped, and has lost it
    killed.release()
    assert holders(fake) == ["next"]


def test_of_two_that_take_over_at_once_one_is_told(fake: Fake) -> None:
    Guard(fake.client(), "killed").take()
    one = Guard(fake.client(), "one", pause=lambda _: None)

    class Late(Guard):
        def _lease(self, revision: str = "") -> dict[str, object]:
            one.take()  # between its last look and its writing
            return super()._lease(revision)

    with pytest.raises(ClusterTakenError, match="one"):
        Late(fake.client(), "late", pause=lambda _: None).take()
    assert holders(fake) == ["one"]
    assert fake.client().get(LEASES, NAME)["spec"]["holderIdentity"] == "one"
