"""Which ends of a version are wrong."""

import pytest
from chaos.rollouts import BAD, GOOD, wrong_end

from contracts.endpoint import Phase


@pytest.mark.parametrize("variant", [*BAD, *GOOD])
def test_a_bad_version_must_not_be_promoted_and_a_good_one_not_judged_bad(variant: str) -> None:
    for phase in (Phase.PROMOTED, Phase.SETTLED):
        assert bool(wrong_end(variant, phase, "no check failed")) is (variant in BAD)
    for phase in (Phase.REJECTED, Phase.ROLLED_BACK):
        assert bool(wrong_end(variant, phase, "errorRate: 10 of 20")) is (variant in GOOD)
    for phase in (Phase.SUPERSEDED, Phase.CANARY, Phase.EXPIRED):
        assert not wrong_end(variant, phase, "no verdict within 10m: no traffic")
