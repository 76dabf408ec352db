"""Adds and removes the statistics of users' own that an endpoint declares. Pure."""

import math

from pydantic import ValidationError

from contracts.endpoint import ModelEndpoint
from contracts.rollout import CustomStatistic
from contracts.validation_errors import join_path
from headrace.errors import RefusedError, RequestFailedError

MOST = 50  # as contracts.endpoint has it


def build_declaration(
    name: str, kind: str, edges: tuple[float, ...], values: tuple[str, ...]
) -> CustomStatistic:
    """A declaration; raises ``RequestFailedError``."""
    if not all(map(math.isfinite, edges)):  # JSON knows no other numbers
        raise RequestFailedError(
            "No statistic was added: edges must be finite; what is above the last one is counted "
            "by itself."
        )
    try:
        return CustomStatistic.model_validate(
            {"name": name, "kind": kind, "edges": edges, "values": values}
        )
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = join_path(first["loc"]) if first["loc"] else name
        said = first["msg"].removeprefix("Value error, ")
        raise RequestFailedError(f"No statistic was added: {where}: {said}.") from None


def with_statistic(endpoint: ModelEndpoint, statistic: CustomStatistic) -> ModelEndpoint:
    """The endpoint with one more statistic, or with that of the same name replaced.

    Raises:
        RefusedError: there are as many as an endpoint may have.
    """
    others = [one for one in endpoint.spec.statistics if one.name != statistic.name]
    if len(others) >= MOST:
        raise RefusedError(f"The endpoint {endpoint.name} has {MOST} statistics, no more fit.")
    if len(others) < len(endpoint.spec.statistics):
        kept = tuple(
            statistic if one.name == statistic.name else one for one in endpoint.spec.statistics
        )
    else:
        kept = (*others, statistic)
    return _set_statistics(endpoint, tuple(kept))


def without_statistic(endpoint: ModelEndpoint, name: str) -> ModelEndpoint:
    """The endpoint without a statistic; raises ``RefusedError``."""
    kept = tuple(one for one in endpoint.spec.statistics if one.name != name)
    if len(kept) == len(endpoint.spec.statistics):
        names = ", ".join(one.name for one in kept) or "none"
        raise RefusedError(
            f"The endpoint {endpoint.name} declares no statistic {name}; it declares: {names}."
        )
    if any(check.name == name for check in endpoint.spec.rollout.checks.statistics):
        raise RefusedError(
            f"A check of the rollout rests on {name}: take it out of "
            "spec.rollout.checks.statistics first (headrace get, headrace apply)."
        )
    return _set_statistics(endpoint, kept)


def _set_statistics(
    endpoint: ModelEndpoint, statistics: tuple[CustomStatistic, ...]
) -> ModelEndpoint:
    spec = endpoint.spec.model_copy(update={"statistics": statistics})
    return endpoint.model_copy(update={"spec": spec})
