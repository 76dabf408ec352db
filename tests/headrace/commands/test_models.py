from registry_fakes import endpoint, ref

from contracts.endpoint import (
    Arm,
    Candidate,
    EndpointStatus,
    Phase,
    Rejection,
    Route,
)
from headrace.commands.models import VersionLine, join


def test_a_version_of_a_model_without_an_endpoint_is_registered() -> None:
    assert join([("m", "1")], []) == [VersionLine("m", "1", None, "Registered")]


def test_every_version_says_what_became_of_it() -> None:
    status = EndpointStatus(
        routes=(Route(arm=Arm.STABLE, ref=ref("2"), weight=100),),
        packages=(ref("1"), ref("2")),
        candidate=Candidate(version="4", phase=Phase.CONVERTING, reason="exporting"),
        rejected=(Rejection(version="3", options="o", reason="a pickle", at=1.0),),
    )
    versions = [("m", number) for number in "54321"]
    found = {line.version: (line.state, line.reason) for line in join(versions, [endpoint(status)])}
    assert found == {
        "5": ("Registered", ""),
        "4": ("Converting", "exporting"),
        "3": ("Rejected", "a pickle"),
        "2": ("Serving", ""),
        "1": ("Held", ""),
    }


def test_a_share_of_the_callers_is_told() -> None:
    routes = (
        Route(arm=Arm.STABLE, ref=ref("1"), weight=95),
        Route(arm=Arm.CANARY, ref=ref("2"), weight=5),
    )
    lines = join([("m", "2"), ("m", "1")], [endpoint(EndpointStatus(routes=routes))])
    assert [line.state for line in lines] == ["Serving 5 % (canary)", "Serving 95 % (stable)"]


def test_a_version_that_answers_nobody_but_copies_is_not_said_to_serve() -> None:
    routes = (
        Route(arm=Arm.STABLE, ref=ref("1"), weight=100),
        Route(arm=Arm.SHADOW, ref=ref("2"), weight=100),
    )
    candidate = Candidate(version="2", phase=Phase.SHADOW, reason="waits", ref=ref("2"))
    status = EndpointStatus(routes=routes, candidate=candidate)
    (line,) = join([("m", "2")], [endpoint(status)])
    assert (line.state, line.reason, line.package) == ("Shadow", "waits", ref("2").package)
