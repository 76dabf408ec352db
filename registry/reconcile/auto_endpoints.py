"""Endpoints for registered models that nobody has written one for, and what they are called.

A pure part of the controller. No two models get one name, and no name is given twice: a model whose
name an endpoint of another model has gets one with a suffix of its own, and both endpoints say so.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping

from contracts.endpoint import EndpointSpec, Metadata, ModelEndpoint
from contracts.model import endpoint_name, name_within

_SUFFIX_CHARACTERS = 8
_LONGEST_BASE = 63 - 1 - _SUFFIX_CHARACTERS
_SAYS_SOMETHING = re.compile(r"[a-z0-9]")


def missing_endpoints(
    models: Iterable[str],
    endpoints: Iterable[ModelEndpoint],
    *,
    taken: frozenset[str] = frozenset(),
) -> tuple[ModelEndpoint, ...]:
    """An endpoint with defaults for each model that no endpoint serves.

    Args:
        models: names of registered models.
        endpoints: all that exist and can be read.
        taken: names of endpoints that exist besides; they may serve the models of their names.

    Returns:
        The new endpoints. A model gets its own name first, then others that only resemble it.
    """
    existing = tuple(endpoints)
    served = {endpoint.spec.model for endpoint in existing}
    names = {endpoint.name for endpoint in existing}
    made = []
    for model in sorted(set(models) - served, key=lambda each: (each != endpoint_name(each), each)):
        # One that can't be read may be this model's.
        if not taken.isdisjoint((endpoint_name(model), suffixed_name(model))):
            continue
        says_something = _SAYS_SOMETHING.search(name_within(model).lower())
        name = endpoint_name(model) if says_something else suffixed_name(model)
        if name in names:
            name = suffixed_name(model)
        if name not in names:
            names.add(name)
            made.append(ModelEndpoint(metadata=Metadata(name=name), spec=EndpointSpec(model=model)))
    return tuple(made)


def suffixed_name(model: str) -> str:
    """The name that a model's endpoint gets if another model's endpoint has the usual one."""
    digest = hashlib.sha256(model.encode()).hexdigest()[:_SUFFIX_CHARACTERS]
    return f"{endpoint_name(model)[:_LONGEST_BASE].rstrip('-')}-{digest}"


def name_notes(endpoints: Iterable[ModelEndpoint]) -> Mapping[str, str]:
    """What an endpoint's status says of a name that two models have, by the endpoint's name."""
    every = {endpoint.name: endpoint for endpoint in endpoints}
    notes: dict[str, str] = {}
    for name in sorted(every):
        model = every[name].spec.model
        usual = every.get(endpoint_name(model))
        if name != suffixed_name(model) or usual is None or usual.spec.model == model:
            continue
        notes[name] = (
            f"the endpoint {usual.name} answers with the model {usual.spec.model}, so that "
            f"{model} is answered here: ask {name}"
        )
        notes.setdefault(
            usual.name, f"the registered model {model} is another one: ask {name} for it"
        )
    return notes
