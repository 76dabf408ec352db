"""Whether a version on trial makes Triton crash: arithmetic on counts, without a clock.

Triton crashes for other reasons too: a node's memory, a GPU that fails, a person. So a version is
refused for crashes while Triton held it only if they are more frequent than this Triton's
crashes without any version on trial. It is refused at once for the second crash in a row while it
was being loaded.
"""

from pydantic import BaseModel, ConfigDict

# Of as many ends in as long a time, if the version had no part in them. Every trial on every Triton
# asks again, after each end, and what kills Tritons comes in clusters: one in a thousand rolled
# back a good version in an hour of faults. A version that really ends Triton needs one end more
# for this.
REFUSED_PROBABILITY = 1e-5
LOAD_CRASHES_ALLOWED = 1  # ends in a row during loads of a version
CRASHES_ALLOWED = 1  # ends under a version that is held, however short the time
# Prior of a Triton of which nothing is known: Jeffreys' prior of a rate, and ten minutes, so that
# the first rollout on a new pod is not decided by seconds.
_PRIOR_ENDS = 0.5
_PRIOR_SECONDS = 600.0
_MEMORY_SECONDS = 86_400.0  # after so long what was seen counts half


class CrashCount(BaseModel):
    """How often Triton ended in how many seconds in which it was seen to answer."""

    model_config = ConfigDict(frozen=True)

    count: float = 0.0
    seconds: float = 0.0

    def count_end(self) -> "CrashCount":
        """Returns the count with one more end."""
        return CrashCount(count=self.count + 1, seconds=self.seconds)

    def count_seconds(self, seconds: float) -> "CrashCount":
        """Returns the count with more time; what is long ago counts less."""
        total = self.seconds + seconds
        if total <= _MEMORY_SECONDS:
            return CrashCount(count=self.count, seconds=total)
        return CrashCount(count=self.count / 2, seconds=total / 2)


def crash_probability(under: CrashCount, usual: CrashCount) -> float:
    """How likely this number of ends is in this time for a Triton that ends as it usually does.

    What is known of the usual rate is a gamma distribution, so that the count is negative binomial
    (Gelman et al., Bayesian Data Analysis, 3rd edition, section 2.6).
    """
    shape = _PRIOR_ENDS + usual.count
    known = _PRIOR_SECONDS + usual.seconds
    missed = under.seconds / (known + under.seconds)
    term = (1.0 - missed) ** shape
    less = 0.0
    for count in range(int(under.count)):
        less += term
        term *= missed * (shape + count) / (count + 1)
    return max(0.0, 1.0 - less)


def reason(loads: int, under: CrashCount, usual: CrashCount) -> str:
    """Why a version on trial is refused for Triton's ends; empty if it is not.

    Args:
        loads: ends in a row while the version was loaded.
        under: ends while Triton held it.
        usual: ends without any version on trial.
    """
    if loads > LOAD_CRASHES_ALLOWED:
        return f"Triton ended {loads} times in a row while it loaded the version"
    if under.count > CRASHES_ALLOWED and crash_probability(under, usual) <= REFUSED_PROBABILITY:
        return (
            f"Triton ended {under.count:.0f} times in {under.seconds:.0f} s while it held the "
            f"version, and {usual.count:.0f} times in {usual.seconds:.0f} s without one on trial"
        )
    return ""
