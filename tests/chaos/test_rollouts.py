"""Which ends of a version are wrong."""

import pytest
from chaos.rollouts import BAD, GOOD, wrong_end

from contracts.endpoint import Phase


@pytest.mark.parametrize("variant", BAD)
@pytest.mark.parametrize("phase", [Phase.PROMOTED, Phase.SETTLED])
def test_a_bad_version_must_not_be_promoted(variant: str, phase: Phase) -> None:
    assert wrong_end(variant, phase, "no check failed")


@pytest.mark.parametrize("variant", BAD)
def test_a_bad_version_may_be_rejected_rolled_back_or_superseded(variant: str) -> None:
    for phase in (Phase.REJECTED, Phase.ROLLED_BACK, Phase.SUPERSEDED, Phase.CANARY):
        assert not wrong_end(variant, phase, "classShare")


@pytest.mark.parametrize("variant", GOOD)
@pytest.mark.parametrize("phase", [Phase.REJECTED, Phase.ROLLED_BACK])
def test_a_good_version_must_not_be_judged_bad(variant: str, phase: Phase) -> None:
    assert wrong_end(variant, phase, "errorRate: 10 of 20")


@pytest.mark.parametrize("variant", GOOD)
def test_a_good_version_may_end_without_a_verdict(variant: str) -> None:
    assert not wrong_end(variant, Phase.EXPIRED, "no verdict within 10m: no traffic")
    assert not wrong_end(variant, Phase.SETTLED, "")
