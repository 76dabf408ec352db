"""Endpoints for registered models that have none, so that registering is all it takes.

Pure.
"""

from collections.abc import Iterable

from contracts.endpoint import EndpointSpec, Metadata, ModelEndpoint
from contracts.model import endpoint_name


def missing(
    models: Iterable[str],
    endpoints: Iterable[ModelEndpoint],
    *,
    taken: frozenset[str] = frozenset(),
) -> tuple[ModelEndpoint, ...]:
    """An endpoint with defaults for each model that no endpoint serves.

    Args:
        models: names of registered models.
        endpoints: all that exist and can be read.
        taken: names of endpoints that exist besides.

    Returns:
        The new endpoints. Of two models whose names give the same endpoint name, the first in
        order gets it; the other needs an endpoint that someone writes.
    """
    existing = tuple(endpoints)
    served = {endpoint.spec.model for endpoint in existing}
    names = {endpoint.name for endpoint in existing} | taken
    made = []
    for model in sorted(set(models) - served):
        name = endpoint_name(model)
        if name not in names:
            names.add(name)
            made.append(ModelEndpoint(metadata=Metadata(name=name), spec=EndpointSpec(model=model)))
    return tuple(made)
