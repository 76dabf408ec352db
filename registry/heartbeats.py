"""Which loaders gave a sign of life lately, by our own clock.

A loader writes its report again and again, with its own node's time in it; that clock may be wrong,
so that what counts is when a report was last seen to change here.
"""

from collections.abc import Iterable

from contracts.loading import LoaderReport

_WRONG_SECONDS = 60.0  # that a node's clock may be behind


class HeartbeatTracker:
    """Remembers when each loader was last heard.

    Args:
        seconds: of silence, after which a loader is not counted on.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._heard: dict[str, tuple[float, float]] = {}  # the report's own time, and ours
        self._looked = 0.0

    def heard(
        self, reports: Iterable[LoaderReport], now: float, *, disconnected: bool = False
    ) -> tuple[LoaderReport, ...]:
        """Those of the reports whose loaders are not silent.

        Args:
            reports: all that are there.
            now: unix time, seconds.
            disconnected: no report can reach us now. None of this time counts as silence, now or
                later.
        """
        told = tuple(reports)
        if disconnected:
            missed = now - self._looked
            self._heard = {
                loader: (at, heard + missed) for loader, (at, heard) in self._heard.items()
            }
        self._looked = now
        self._heard = {report.loader: (report.at, self._heard_at(report, now)) for report in told}
        return tuple(
            report for report in told if now - self._heard[report.loader][1] <= self._seconds
        )

    def _heard_at(self, report: LoaderReport, now: float) -> float:
        known = self._heard.get(report.loader)
        if known is not None:
            return known[1] if known[0] == report.at else now
        # After a start, a report may be what a loader left that is gone for good.
        return now if now - report.at <= self._seconds + _WRONG_SECONDS else report.at
