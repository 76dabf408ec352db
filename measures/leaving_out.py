"""Evidence to fail that holds without any one group of callers, and without single windows.

Callers stick to an arm, and what one of them begins looks like a fault of the version that answers
it. A stall of a few seconds looks like one as well. So evidence counts only as far as it is left
when the callers of any one group are left out of it, and as it is left, in tests where a stall
shows, when any one window of each block is. A block has ``BLOCK`` windows at least, and so many
requests of the canary that a window's part in them is small.

Whichever single caller misbehaves, and whatever it does, the evidence without its group is of
requests that it had no part in, and the least evidence over all groups is at most that. So a wrong
alarm is no more likely than without the caller. The same holds for one bad window a block
(docs/methods.md#left-without-one-group-or-one-window).

The least mixture over all ways to leave out one window a block is computed exactly, window by
window: a mixture of restarts grows with each of its factors, so that the least one at a window
follows from the least ones at the window before. Of windows, each alternative is minimised by
itself: the mean of the least values is at most the least mean.

Leading axes are independent, as in ``measures.proportions``. Pure.
"""

import base64
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from contracts.windows import CALLER_GROUPS
from measures.correlation import Floats
from measures.proportions import ALTERNATIVES, HarmTest, Tests, restart_weight, unspent

GROUPS = CALLER_GROUPS  # each is left out by itself
BLOCK = 30  # windows, at least, of which one may be left out
BLOCK_EVENTS = 50.0  # of the canary, at least, that are to be expected in a block at stable's rate
LEAST_RATE = 0.005  # taken for stable's, where it is less
STALLING = 2  # so many tests, the first ones, are those in which a stall shows
_LEAST, _NONE = 0, 1  # rows of evidence, before those without a group
GROUPS_FROM = 2
_ROWS = GROUPS_FROM + GROUPS
_MOST = 690.0  # the largest logarithm that is told


class LeftOut:
    """The evidence without single windows, and without each group.

    Attributes:
        log_a: ``[..., 2 + GROUPS, tests, ALTERNATIVES]``, as ``HarmTest.log_a``, in single
            precision: the least with at most one window of this block left out, with none of this
            block left out, and with all windows and without each group.
        block: ``[..., 2, STALLING]``, windows of this block and the events that were to be
            expected in them.
    """

    def __init__(self, log_a: Floats, block: Floats | None = None) -> None:
        self.log_a = log_a
        empty = np.zeros((*log_a.shape[:-3], 2, min(STALLING, log_a.shape[-2])))
        self.block = empty if block is None else block

    @classmethod
    def begin(cls, tests: int, shape: tuple[int, ...] = (), groups: int = GROUPS) -> Self:
        """No evidence yet, of so many tests."""
        return cls(np.full((*shape, GROUPS_FROM + groups, tests, ALTERNATIVES), -np.inf))

    @classmethod
    def following(cls, harm: HarmTest) -> Self:
        """What was found so far counts whole: a test that is added later begins so."""
        return cls(_kept(np.repeat(harm.log_a[..., None, :, :], _ROWS, axis=-3)))

    def joined(self, other: Self, tests: slice) -> Self:
        """With these tests of another one, which may have more tests at its end."""
        log_a = np.array(other.log_a)
        is_own = np.ones(log_a.shape[-2], dtype=np.bool_)
        is_own[tests] = False
        log_a[..., is_own, :] = self.log_a[..., is_own[: self.log_a.shape[-2]], :]
        return type(self)(log_a, self.block)

    def after(self, log_s: Floats, of_groups: Floats, window: int, expected: Floats) -> Self:
        """With one more window.

        Args:
            log_s: ``[..., tests, ALTERNATIVES]``, of all requests (``proportions.log_evidence``).
            of_groups: ``[..., GROUPS, tests, ALTERNATIVES]``, without the callers of each group.
            window: its number, from 1.
            expected: ``[..., tests]``, the canary's events in it at stable's rate, as it was
                believed before (``expected_events``).
        """
        before = np.array(self.log_a)
        is_over = (self.block[..., 0, :] >= BLOCK) & (self.block[..., 1, :] >= BLOCK_EVENTS)
        # A new block, of which none is left out yet.
        before[..., _NONE, :STALLING, :] = np.where(
            is_over[..., None],
            before[..., _LEAST, :STALLING, :],
            before[..., _NONE, :STALLING, :],
        )
        more = np.stack([np.ones_like(is_over), expected[..., :STALLING]], axis=-2)
        block = np.where(is_over[..., None, :], 0.0, self.block) + more
        before = np.logaddexp(before, np.log(restart_weight(window)))
        every = np.repeat(log_s[..., None, :, :], 2, axis=-3)
        log_a = before + np.concatenate([every, of_groups], axis=-3)
        # Without this window, what none was left out of stays as it was.
        log_a[..., _LEAST, :STALLING, :] = np.minimum(
            log_a[..., _LEAST, :STALLING, :], before[..., _NONE, :STALLING, :]
        )
        return type(self)(_kept(log_a), _kept(block))

    def e_value(self, windows: int, is_alone: NDArray[np.bool_]) -> Floats:
        """``[..., tests]``: the least evidence after so many windows, to hold against 1/alpha.

        ``is_alone``, ``[..., tests]``: where no callers are left out, for one group is all of an
        arm.
        """
        of_each = np.exp(np.minimum(self.log_a, _MOST)).mean(axis=-1)
        by_windows = of_each[..., _LEAST, :]
        by_groups = of_each[..., GROUPS_FROM:, :].min(axis=-2, initial=np.inf)
        least: Floats = np.where(is_alone, by_windows, np.minimum(by_windows, by_groups))
        return least + unspent(windows)

    def to_json(self) -> list[str]:
        """Its numbers in single precision, as base64."""
        parts = (self.log_a, self.block)
        return [base64.b64encode(part.astype("<f4").tobytes()).decode() for part in parts]

    @classmethod
    def of_json(cls, data: Any) -> Self:  # noqa: ANN401 - what it wrote itself
        """What ``to_json`` told, of one rollout.

        Raises:
            ValueError: it is nothing like that.
        """
        log_a, block = (
            np.frombuffer(base64.b64decode(part, validate=True), dtype="<f4").astype(np.float64)
            for part in data
        )
        return cls(log_a.reshape(_ROWS, -1, ALTERNATIVES), block.reshape(2, -1))


def expected_events(n_c: Floats, theta_s: Floats, tests: Tests = None) -> Floats:
    """``[..., tests]``: the canary's events in a window at stable's rates, ``[..., rows]``."""
    expected: Floats = n_c * np.maximum(theta_s, LEAST_RATE)
    return expected if tests is None else np.add.reduceat(expected, tests, axis=-1)


def _kept(log_a: Floats) -> Floats:
    return log_a.astype(np.float32).astype(np.float64)
