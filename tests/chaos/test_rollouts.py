"""Which ends versions may come to."""

import pytest
from chaos.rollouts import BAD, GOOD, OVER, PROMOTED, wrong_end

from contracts.endpoint import Phase


@pytest.mark.parametrize("strict", [True, False])
def test_a_bad_version_is_never_promoted_and_a_good_one_never_judged_bad(*, strict: bool) -> None:
    assert wrong_end(BAD[0], Phase.SETTLED, "", strict=strict)
    assert wrong_end(GOOD[0], Phase.REJECTED, "", strict=strict)
    assert not wrong_end(BAD[0], Phase.ROLLED_BACK, "", strict=strict)
    assert not wrong_end(GOOD[0], Phase.SETTLED, "", strict=strict)


def test_a_good_version_without_a_verdict_is_wrong_only_if_every_one_must_be_promoted() -> None:
    assert not wrong_end(GOOD[0], Phase.EXPIRED, "")
    for phase in OVER - PROMOTED:
        assert wrong_end(GOOD[0], phase, "", strict=True)


def test_a_version_on_its_way_is_not_wrong() -> None:
    for variant in (*GOOD, *BAD):
        assert not wrong_end(variant, Phase.SHADOW, "", strict=True)
