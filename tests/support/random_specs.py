"""Specs of endpoints at random, of values that the definition's own schema lets through."""

import itertools
from collections.abc import Callable
from typing import Any

from chart_definition import crd
from hypothesis import strategies as st
from waiting import until

from contracts.endpoint import API_VERSION, KIND
from registry.stores.cluster_endpoints import KubernetesEndpointStore
from service.cluster import endpoints
from service.cluster.client import ClusterClient
from service.cluster.errors import ApiRefusedError

_numbers = itertools.count()
# What people write where the schema takes anything.
_ANYTHING: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from(["auto", "auto2", "", -1, 1.5, True, None, [], ["x"], [1.5], [None], {}]),
    st.lists(st.integers(-1, 600), max_size=3),
)
_LEFT_OUT = st.just(...)  # a dictionary's own way of leaving out gives few fields deep inside
_TEXTS = st.sampled_from(["", "a", "b", "auto2", "1x", "1h30m", "0s", "-1s", "NaN", "ä b"])


def specs() -> st.SearchStrategy[dict[str, Any]]:
    """Specs with any of the fields, and items in the lists."""
    (version,) = crd.definition()["spec"]["versions"]
    return _values(version["schema"]["openAPIV3Schema"]["properties"]["spec"])


def _values(shape: dict[str, Any]) -> st.SearchStrategy[Any]:
    fitting = _fitting(shape)
    return st.none() | fitting if shape.get("nullable") else fitting


def _fitting(shape: dict[str, Any]) -> st.SearchStrategy[Any]:
    if "enum" in shape:
        return st.sampled_from(shape["enum"])
    if "properties" in shape:
        return st.fixed_dictionaries(
            {
                name: _values(below)
                | (st.nothing() if name in shape.get("required", ()) else _LEFT_OUT)
                for name, below in shape["properties"].items()
            }
        ).map(lambda made: {name: value for name, value in made.items() if value is not ...})
    makers: dict[str, Callable[[], st.SearchStrategy[Any]]] = {
        "object": lambda: st.dictionaries(
            _TEXTS,
            _values(shape.get("additionalProperties", {})),
            min_size=shape.get("minProperties", 0),
            max_size=3,
        ),
        "array": lambda: st.lists(
            _values(shape["items"]), min_size=shape.get("minItems", 0), max_size=3
        ),
        "string": lambda: (
            st.from_regex(shape["pattern"], fullmatch=True) if "pattern" in shape else _TEXTS
        ),
        "integer": lambda: st.integers(shape.get("minimum"), shape.get("maximum")),
        "number": lambda: st.floats(
            shape.get("minimum"),
            shape.get("maximum"),
            exclude_min=shape.get("exclusiveMinimum", False),
            exclude_max=shape.get("exclusiveMaximum", False),
            allow_nan=False,
            allow_infinity=False,
        ),
        "boolean": st.booleans,
    }
    return makers[shape["type"]]() if "type" in shape else _ANYTHING


def is_taken(
    client: ClusterClient, namespace: str, store: KubernetesEndpointStore, spec: dict[str, Any]
) -> bool:
    """Whether the API server takes a spec; if so, it is read or its condition has a sentence."""
    collection, name = endpoints.collection(namespace), f"random-{next(_numbers)}"
    item = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}, "spec": spec}
    try:
        client.create(collection, item)
    except ApiRefusedError:
        return False

    def said() -> str:
        store.tell_refused()
        if any(one.name == name for one in store.list()):
            return "it is read"
        conditions = client.get(collection, name).get("status", {}).get("conditions") or ()
        refusals = [
            one for one in conditions if (one["type"], one["status"]) == ("Accepted", "False")
        ]
        return str(refusals[0]["message"]) if refusals else ""

    sentence = until(f"it is read or says why not: {spec}", 60, said, every_seconds=0.01)
    client.delete(collection, name)
    assert sentence == "it is read" or sentence.startswith("spec."), (sentence, spec)
    assert not {"\n", "pydantic"} & {*sentence, *sentence.split()}, (sentence, spec)
    return True
