"""How clumpy traffic is: intra-window correlation, and how many requests then count as one.

Requests of one window are not independent: one caller's batch, one bad minute. It is estimated from
the stable arm's windows from before the canary began. Dividing counts by the design effect is a
heuristic that simulation supports (``docs/rollout.md``), and costs power where it errs. Pure.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

CAUTION = 1.5  # being too careful costs less than being wrong


def design_effect(n: Floats, rho: Floats | float) -> Floats:
    """``1 + (n - 1) rho``, at least 1: so many requests of a window count as one.

    Source: Kish, Survey Sampling (1965), on samples in clusters.
    """
    effect: Floats = np.maximum(1.0, 1.0 + (n - 1.0) * rho)
    return effect


def intra_window_correlation(events: ArrayLike, requests: ArrayLike) -> float:
    """The rho of one event's share over stable's windows.

    Args:
        events: ``[windows]`` counts, in order of time, without a window that straddles the start of
            a canary.
        requests: ``[windows]`` counts; windows without requests are left out.

    Returns:
        At least 0; 0 where there is nothing to learn from. Ten windows and more make it worth
        something.
    """
    e, n = np.asarray(events, dtype=np.float64), np.asarray(requests, dtype=np.float64)
    return histogram_correlation(np.stack([e, n - e], axis=-1))


def histogram_correlation(counts: ArrayLike) -> float:
    """The rho of the shares of several classes over stable's windows, as one number.

    ``1.5 max(0, (X - 1) / (n_mean - 1))``, where X is what successive windows differ by, over what
    independent requests would: mean over pairs of
    ``sum_k (p_jk - p_ik)^2 / p_k / ((K - 1) (1/n_j + 1/n_i))``, K the classes that occur.
    Successive differences leave slow drift out.

    Args:
        counts: ``[windows, classes]``, in order of time; windows without counts are left out.

    Returns:
        At least 0; 0 where there is nothing to learn from.
    """
    held = np.asarray(counts, dtype=np.float64)
    n = held.sum(axis=-1)
    held, n = held[n > 0], n[n > 0]
    p = held.sum(axis=0)
    held, p = held[:, p > 0], p[p > 0] / max(1.0, p.sum())
    if len(n) < 2 or len(p) < 2:
        return 0.0
    shares = held / n[:, None]
    squared = ((shares[1:] - shares[:-1]) ** 2 / p).sum(axis=-1) / (len(p) - 1)
    x = float(np.mean(squared / (1 / n[1:] + 1 / n[:-1])))
    mean = float(n.mean())
    return CAUTION * max(0.0, (x - 1.0) / max(mean - 1.0, 1.0))
