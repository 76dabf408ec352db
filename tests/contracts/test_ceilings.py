"""The operator's ceilings: one table, from which controller, services and cluster ask."""

from collections.abc import Iterator
from typing import Any

import celpy
import pytest
from celpy.adapter import json_to_cel
from hypothesis import given
from hypothesis import strategies as st

from contracts.ceilings import CEILINGS, NO_CEILINGS, POOL_CEL, Ceiling, Ceilings
from contracts.endpoint import (
    AnswerCacheOptions,
    EndpointLimits,
    EndpointSpec,
    Metadata,
    ModelEndpoint,
    ServingOptions,
)
from contracts.endpoint import UnkWords as Words
from contracts.rollout import CustomStatistic, RolloutSpec, ShadowStep, StatisticKind, WeightStep

# Fields of a spec that hold a number, a list or a duration, and that have no ceiling: why not.
FREE = {
    "serving.minNeighbours": "a stricter comparison costs nobody else",
    "limits.requestsPerSecondPerKey": "it bounds the endpoint's own callers",
    "rollout.steps": "at most 20, walked one after the other",
    "rollout.steps[].weight": "callers of the endpoint's own",
    "rollout.deadline": "a rollout holds two versions whatever its length, and a loader takes no "
    "more than fits",
    "rollout.bake": "as the deadline",
    "rollout.embedding.keep": "as the deadline, and only while somebody asks for the space",
    "rollout.minimumStep": "within the deadline",
    "rollout.controllerTimeout": "when the endpoint's own callers go back",
    "rollout.holdBack": "callers of the endpoint's own",
    "rollout.falseRollback": "the endpoint's own risk",
    "rollout.checks.statistics": "each is of a declared statistic",
    "slo.availability": "what alerts are about",
    "slo.latency.percentile": "as availability",
}
BOUNDED = {
    "serving.instances", "serving.maxBatchSize", "serving.maxTokens", "serving.lengthBuckets",
    "serving.cache.megabytes", "limits.maxTokensInFlight", "limits.maxTextsPerRequest",
    "limits.timeoutSeconds", "statistics", "statistics[].edges", "statistics[].values",
    "unkWords.top", "rollout.steps[].shadow",
}  # fmt: skip


def sized(node: dict[str, Any], definitions: dict[str, Any], path: str = "") -> Iterator[str]:
    """The fields below a node that hold a number, a list or a duration."""
    node = {**definitions.get(node.get("$ref", "").rpartition("/")[2], {}), **node}
    if node.get("type") in ("integer", "number", "array") or (
        "pattern" in node and ("d|h|m|s" in node["pattern"])
    ):
        yield path
    for name, below in node.get("properties", {}).items():
        yield from sized(below, definitions, f"{path}.{name}".lstrip("."))
    if isinstance(node.get("items"), dict):
        yield from sized(node["items"], definitions, f"{path}[]")
    for below in node.get("anyOf", ()):
        yield from sized(below, definitions, path)


def test_whatever_an_endpoint_can_ask_for_has_a_ceiling_or_a_reason_to_have_none() -> None:
    schema = EndpointSpec.model_json_schema(by_alias=True)
    found = set(sized(schema, schema["$defs"]))
    scalars = {path for path in found if not path.endswith("[]")}
    # The thresholds of checks judge the endpoint's own rollouts.
    asked = {path for path in scalars if not path.startswith("rollout.checks.")}
    assert asked == (BOUNDED | FREE.keys()) - {"rollout.checks.statistics"}


def statistics() -> st.SearchStrategy[CustomStatistic]:
    def of(name: str, kind: StatisticKind, size: int) -> CustomStatistic:
        edges = tuple(map(float, range(size))) if kind is StatisticKind.HISTOGRAM else ()
        values = tuple(map(str, range(size))) if kind is StatisticKind.CATEGORY else ()
        return CustomStatistic(name=name, kind=kind, edges=edges, values=values)

    names = st.from_regex(r"\A[a-z][a-z0-9_]{0,5}\Z")
    return st.builds(of, names, st.sampled_from(StatisticKind), st.integers(1, 30))


def rollouts() -> st.SearchStrategy[RolloutSpec]:
    shadows = st.lists(st.floats(0.5, 100), max_size=3)
    weights = st.sets(st.integers(1, 99), min_size=1, max_size=3)

    def of(copied: list[float], given_to: set[int]) -> RolloutSpec:
        steps = [ShadowStep(shadow=each) for each in copied]
        return RolloutSpec(steps=(*steps, *(WeightStep(weight=each) for each in sorted(given_to))))

    return st.one_of(st.just(RolloutSpec()), st.builds(of, shadows, weights))


SPECS = st.builds(
    EndpointSpec,
    model=st.just("m"),
    serving=st.builds(
        ServingOptions,
        instances=st.none() | st.integers(1, 64),
        max_batch_size=st.integers(1, 1024),
        max_tokens=st.integers(8, 32768),
        length_buckets=st.just("auto")
        | st.sets(st.integers(8, 512), max_size=9).map(lambda each: tuple(sorted(each))),
        cache=st.none() | st.builds(AnswerCacheOptions, megabytes=st.integers(1, 65536)),
    ),
    limits=st.builds(
        EndpointLimits,
        max_tokens_in_flight=st.integers(1, 1 << 20),
        max_texts_per_request=st.integers(1, 4096),
        timeout_seconds=st.floats(0.01, 600),
    ),
    statistics=st.lists(statistics(), max_size=6).map(tuple),
    unk_words=st.builds(Words, enabled=st.booleans(), top=st.integers(1, 100)),
    rollout=rollouts(),
)
MOST = {
    "instances": 8, "maxBatchSize": 256, "maxTokens": 1024, "lengthBuckets": 6,
    "cacheMegabytes": 1000, "maxTokensInFlight": 100_000, "maxTextsPerRequest": 500,
    "timeoutSeconds": 60, "statistics": 4, "statisticBuckets": 20, "unkWords": 40,
    "shadowPercent": 50,
}  # fmt: skip


def numbers(each: Ceiling) -> st.SearchStrategy[float]:
    if each.name in ("timeoutSeconds", "shadowPercent"):
        return st.floats(each.least, 2.0 * MOST[each.name])
    return st.integers(each.least, 2 * MOST[each.name]).map(float)


CHOSEN = st.fixed_dictionaries({}, optional={each.name: numbers(each) for each in CEILINGS}).map(
    Ceilings
)


@given(SPECS, CHOSEN)
def test_a_bounded_spec_is_a_spec_and_above_no_ceiling(
    spec: EndpointSpec, ceilings: Ceilings
) -> None:
    bounded = ceilings.bound(spec)
    assert ceilings.list_excesses(bounded) == ()
    written = bounded.model_dump(mode="json", by_alias=True)
    assert EndpointSpec.model_validate(written) == bounded
    assert (bounded is spec) == (not ceilings.list_excesses(spec))


@given(SPECS)
def test_without_ceilings_everything_may_be_asked_for(spec: EndpointSpec) -> None:
    assert NO_CEILINGS.list_excesses(spec) == ()
    assert NO_CEILINGS.bound(spec) is spec


# What the cluster's API server evaluates; ``max`` is Kubernetes' own.
ENVIRONMENT = celpy.Environment()
PROGRAMS = {
    each.name: ENVIRONMENT.program(ENVIRONMENT.compile(each.cel), functions={"max": max})
    for each in CEILINGS
}


@given(SPECS, st.booleans())
def test_the_cluster_reads_the_same_wishes_as_the_controller(
    spec: EndpointSpec, with_defaults: bool
) -> None:
    written = spec.model_dump(
        mode="json", by_alias=True, exclude_none=True, exclude_defaults=not with_defaults
    )
    found = {"object": json_to_cel({"spec": {"model": "m", **written}})}
    for each in CEILINGS:
        wish = PROGRAMS[each.name].evaluate(found)
        assert isinstance(wish, float), each.name
        assert float(wish) == each.wish(spec), each.name


def test_the_sentence_names_field_wish_and_ceiling() -> None:
    spec = EndpointSpec(
        model="m", serving=ServingOptions(instances=9), limits=EndpointLimits(timeout_seconds=2.5)
    )
    ceilings = Ceilings({"instances": 4, "timeoutSeconds": 2})
    assert ceilings.list_excesses(spec) == (
        "spec.serving.instances is 9, above the operator's ceiling of 4",
        "spec.limits.timeoutSeconds is 2.5, above the operator's ceiling of 2",
    )


@given(CHOSEN)
def test_a_flag_reads_back_as_it_was_written(ceilings: Ceilings) -> None:
    read = Ceilings.read(str(ceilings))
    assert read.most.keys() == ceilings.most.keys()
    assert all(most == pytest.approx(ceilings.most[name]) for name, most in read.most.items())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("instance=4", "There is no ceiling 'instance'"),
        ("instances", "needs a number"),
        ("instances=many", "needs a number, not 'many'"),
        ("instances=0", "at least 1"),
        ("timeoutSeconds=inf", "at least 1"),
        ("timeoutSeconds=nan", "at least 1"),
    ],
)
def test_a_word_that_is_no_ceiling_is_refused_with_a_reason(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Ceilings.read(text)


def test_an_endpoint_within_the_ceilings_stays_the_same_object() -> None:
    endpoint = ModelEndpoint(metadata=Metadata(name="e"), spec=EndpointSpec(model="m"))
    assert Ceilings({"instances": 4}).bounded_endpoint(endpoint) is endpoint
    bounded = Ceilings({"maxBatchSize": 8}).bounded_endpoint(endpoint)
    assert bounded.spec.serving.max_batch_size == 8
    assert bounded.metadata == endpoint.metadata


def test_pools_that_an_operator_allows_are_a_flag_a_sentence_and_an_expression() -> None:
    ceilings = Ceilings.read("instances=4,pools=cpu|gpu")
    assert (ceilings.pools, str(ceilings)) == (("cpu", "gpu"), "instances=4,pools=cpu|gpu")
    plain, gpu = EndpointSpec(model="m"), EndpointSpec(model="m", pool="gpu")
    assert ceilings.list_excesses(gpu) == ()
    assert ceilings.bound(gpu) is gpu
    assert ceilings.list_excesses(plain) == (
        "spec.pool is default, and the operator allows only cpu, gpu",
    )
    assert ceilings.bound(plain).pool == "cpu"
    program = ENVIRONMENT.program(ENVIRONMENT.compile(POOL_CEL))
    for spec in (plain, gpu):
        written = spec.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        assert program.evaluate({"object": json_to_cel({"spec": written})}) == spec.pool


@pytest.mark.parametrize("text", ["pools=", "pools=|", "pools=CPU", "pools=cpu|-a"])
def test_a_word_that_names_no_pool_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="pools needs names of pools"):
        Ceilings.read(text)
