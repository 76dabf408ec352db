"""Which arms are compared: the part of a rollout's life that evidence depends on.

A step from 5 % to 25 % enters the same stage anew.
"""

from enum import StrEnum
from typing import Final

# Windows at the start of a step in which some gateways still have the split of before.
TAKEN_UP_WINDOWS: Final = 6


class Stage(StrEnum):
    """Who is compared with whom."""

    SHADOW = "shadow"  # the candidate's answers to copies, with stable's to the originals
    CANARY = "canary"  # the candidate's callers, with stable's
    BAKE = "bake"  # the promoted version's callers, with those who keep the old one
