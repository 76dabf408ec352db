"""The versions of an endpoint that are not tried again: the one owner of ``status.rejected``.

Registry and rollout both reject versions, and both write it here. A rejection of a version newer
than stable is never forgotten, else it would be tried again for ever. What bounds the room: only
the newest keep their reasons, and beyond ``REJECTIONS_LIMIT`` records the oldest versions are told
by one number, ``status.rejected_through``, up to which ``latest`` tries nothing any more.
"""

from contracts.endpoint import REASONS_LIMIT, REJECTIONS_LIMIT, EndpointStatus, Rejection


def of(status: EndpointStatus, version: str, options: str) -> Rejection | None:
    """The record of a version's rejection under these options, if there is one.

    Args:
        status: of the endpoint.
        version: its number.
        options: digest of the serving options.
    """
    wanted = (version, options)
    return next((item for item in status.rejected if (item.version, item.options) == wanted), None)


def is_passed_over(status: EndpointStatus, version: str) -> bool:
    """Whether ``latest`` tries a version no more, though it may have no record of its own.

    A version that a person names, by a pin or an alias, is not passed over.
    """
    if status.stable is not None and version == status.stable.version:
        return False
    return int(version) <= status.rejected_through


def added(status: EndpointStatus, rejection: Rejection) -> EndpointStatus:
    """With one more rejection, which takes the place of an earlier one under the same options."""
    same = of(status, rejection.version, rejection.options)
    kept, through = _bounded(status, [item for item in status.rejected if item is not same])
    long_ago = len(kept) + 1 - REASONS_LIMIT
    short = [
        item.model_copy(update={"reason": ""}) if place < long_ago and item.reason else item
        for place, item in enumerate(kept)
    ]
    update = {"rejected": (*short, rejection), "rejected_through": through}
    return status.model_copy(update=update)


def cleared(status: EndpointStatus, version: str) -> EndpointStatus:
    """Without the rejections of a version; equal where it has none."""
    kept = tuple(item for item in status.rejected if item.version != version)
    return status.model_copy(update={"rejected": kept})


def _bounded(status: EndpointStatus, rejected: list[Rejection]) -> tuple[list[Rejection], int]:
    """The records that have room beside one more, and up to which number none is tried again.

    Those that ``latest`` can't come back to go first, the longest ago first; then the oldest
    versions.
    """
    through = status.rejected_through
    over = len(rejected) + 1 - REJECTIONS_LIMIT
    if over <= 0:
        return rejected, through
    least = max(_least_stable(status), through)
    numbers = [int(item.version) for item in rejected]
    behind = [place for place, number in enumerate(numbers) if number <= least][:over]
    ahead = [place for place, number in enumerate(numbers) if number > least]
    oldest = sorted(ahead, key=numbers.__getitem__)[: over - len(behind)]
    gone = {*behind, *oldest}
    through = max((through, *(numbers[place] for place in oldest)))
    return [item for place, item in enumerate(rejected) if place not in gone], through


def _least_stable(status: EndpointStatus) -> int:
    """The oldest version that is stable or that an undo may make so; 0 where there is none."""
    refs = [status.stable]
    refs += [state.stable for state in (status.rollout, status.last_rollout) if state is not None]
    return min((int(ref.version) for ref in refs if ref is not None), default=0)
