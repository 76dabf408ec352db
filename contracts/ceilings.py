"""The operator's ceilings over what an endpoint's author may ask for at others' cost.

One table says what is bounded. Of it are made the checks of the controller, the values that
gateways and loaders hold to, and the expressions (CEL) of the chart's ValidatingAdmissionPolicy, so
that a cluster and Headrace itself refuse the same. Pure.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from contracts.endpoint import AnswerCacheOptions, EndpointSpec, ModelEndpoint, UnkWords
from contracts.model import DEFAULT_POOL, POOL_NAME
from contracts.rollout import CustomStatistic, RolloutSpec, ShadowStep


@dataclass(frozen=True, slots=True)
class Ceiling:
    """One row of the table.

    Attributes:
        name: of the operator's value, ``ceilings.NAME``.
        what: is bounded, as it begins a sentence.
        least: that an operator may set; 0 if an endpoint can do without.
        wish: what a spec asks for; 0 if it asks for nothing.
        lowered: the spec with no more than this of it.
        cel: ``wish`` as an expression of CEL over ``object``, a double.
    """

    name: str
    what: str
    least: int
    wish: Callable[[EndpointSpec], float]
    lowered: Callable[[EndpointSpec, float], EndpointSpec]
    cel: str

    def sentence(self, wish: float, ceiling: float) -> str:
        """What is wrong with a wish above the ceiling."""
        return f"{self.what} is {wish:g}, above the operator's ceiling of {ceiling:g}"


# CEL


def _is_given(*path: str) -> str:
    """Whether every part of a path below ``object.spec`` is given."""
    parts = [".".join(path[:end]) for end in range(1, len(path) + 1)]
    return " && ".join(f"has(object.spec.{part})" for part in parts)


def _number(*path: str, default: float = 0.0) -> str:
    return f"({_is_given(*path)} ? double(object.spec.{'.'.join(path)}) : {default!r})"


def _length(*path: str) -> str:
    """Of a list; 0 of what is none, such as ``auto``."""
    at = f"object.spec.{'.'.join(path)}"
    return f"({_is_given(*path)} && type({at}) == list ? double(size({at})) : 0.0)"


def _find_largest(*path: str, of: str) -> str:
    """The greatest of the numbers that ``of`` makes of a list's items."""
    at = f"object.spec.{'.'.join(path)}"
    return f"({_is_given(*path)} ? {at}.map(item, {of}) + [0.0] : [0.0]).max()"


# Specs


def _serving(spec: EndpointSpec, **update: object) -> EndpointSpec:
    return spec.model_copy(update={"serving": spec.serving.model_copy(update=update)})


def _limits(spec: EndpointSpec, **update: object) -> EndpointSpec:
    return spec.model_copy(update={"limits": spec.limits.model_copy(update=update)})


def _buckets(spec: EndpointSpec) -> tuple[int, ...]:
    asked = spec.serving.length_buckets
    return () if asked == "auto" else asked


def _cache(spec: EndpointSpec, most: float) -> EndpointSpec:
    asked = spec.serving.cache
    if asked is None or most < 1:
        return _serving(spec, cache=None)
    return _serving(spec, cache=AnswerCacheOptions(megabytes=int(most), shared=asked.shared))


def _count_listed_words(spec: EndpointSpec) -> int:
    return spec.unk_words.top if spec.unk_words.enabled else 0


def _unk_words(spec: EndpointSpec, most: float) -> EndpointSpec:
    words = UnkWords(enabled=True, top=int(most)) if most >= 1 else UnkWords()
    return spec.model_copy(update={"unk_words": words})


def _buckets_of(statistic: CustomStatistic) -> int:
    return len(statistic.edges) + len(statistic.values)


def _drop_wide_statistics(spec: EndpointSpec, most: float) -> EndpointSpec:
    kept = tuple(each for each in spec.statistics if _buckets_of(each) <= most)
    return spec.model_copy(update={"statistics": kept})


def _shadow(spec: EndpointSpec) -> float:
    return max(
        (each.shadow for each in spec.rollout.steps if isinstance(each, ShadowStep)), default=0
    )


def _limit_shadow(spec: EndpointSpec, most: float) -> EndpointSpec:
    steps = tuple(
        ShadowStep(shadow=min(each.shadow, most)) if isinstance(each, ShadowStep) else each
        for each in spec.rollout.steps
    )
    rollout: RolloutSpec = spec.rollout.model_copy(update={"steps": steps})
    return spec.model_copy(update={"rollout": rollout})


_USUAL = EndpointSpec(model="any")

CEILINGS: tuple[Ceiling, ...] = (
    Ceiling(
        "instances",
        "spec.serving.instances",
        1,
        lambda spec: spec.serving.instances or 0,
        lambda spec, most: _serving(spec, instances=int(most)),
        _number("serving", "instances"),
    ),
    Ceiling(
        "maxBatchSize",
        "spec.serving.maxBatchSize",
        1,
        lambda spec: spec.serving.max_batch_size,
        lambda spec, most: _serving(spec, max_batch_size=int(most)),
        _number("serving", "maxBatchSize", default=float(_USUAL.serving.max_batch_size)),
    ),
    Ceiling(
        "maxTokens",
        "spec.serving.maxTokens",
        8,
        lambda spec: spec.serving.max_tokens,
        lambda spec, most: _serving(spec, max_tokens=int(most)),
        _number("serving", "maxTokens", default=float(_USUAL.serving.max_tokens)),
    ),
    Ceiling(
        "lengthBuckets",
        "the number of spec.serving.lengthBuckets",
        1,
        lambda spec: len(_buckets(spec)),
        lambda spec, most: _serving(spec, length_buckets=_buckets(spec)[-int(most) :]),
        _length("serving", "lengthBuckets"),
    ),
    Ceiling(
        "cacheMegabytes",
        "spec.serving.cache.megabytes",
        0,
        lambda spec: spec.serving.cache.megabytes if spec.serving.cache else 0,
        _cache,
        _number("serving", "cache", "megabytes"),
    ),
    Ceiling(
        "maxTokensInFlight",
        "spec.limits.maxTokensInFlight",
        1,
        lambda spec: spec.limits.max_tokens_in_flight,
        lambda spec, most: _limits(spec, max_tokens_in_flight=int(most)),
        _number("limits", "maxTokensInFlight", default=float(_USUAL.limits.max_tokens_in_flight)),
    ),
    Ceiling(
        "maxTextsPerRequest",
        "spec.limits.maxTextsPerRequest",
        1,
        lambda spec: spec.limits.max_texts_per_request,
        lambda spec, most: _limits(spec, max_texts_per_request=int(most)),
        _number("limits", "maxTextsPerRequest", default=float(_USUAL.limits.max_texts_per_request)),
    ),
    Ceiling(
        "timeoutSeconds",
        "spec.limits.timeoutSeconds",
        1,
        lambda spec: spec.limits.timeout_seconds,
        lambda spec, most: _limits(spec, timeout_seconds=most),
        _number("limits", "timeoutSeconds", default=_USUAL.limits.timeout_seconds),
    ),
    Ceiling(
        "statistics",
        "the number of spec.statistics",
        0,
        lambda spec: len(spec.statistics),
        lambda spec, most: spec.model_copy(update={"statistics": spec.statistics[: int(most)]}),
        _length("statistics"),
    ),
    Ceiling(
        "statisticBuckets",
        "the most edges or values of one of spec.statistics",
        1,
        lambda spec: max(map(_buckets_of, spec.statistics), default=0),
        _drop_wide_statistics,
        _find_largest(
            "statistics",
            of="(has(item.edges) ? double(size(item.edges)) : 0.0)"
            " + (has(item.values) ? double(size(item.values)) : 0.0)",
        ),
    ),
    Ceiling(
        "unkWords",
        "spec.unkWords.top",
        0,
        _count_listed_words,
        _unk_words,
        f"({_is_given('unkWords', 'enabled')} && object.spec.unkWords.enabled"
        f" ? {_number('unkWords', 'top', default=float(_USUAL.unk_words.top))} : 0.0)",
    ),
    Ceiling(
        "shadowPercent",
        "the largest share of a shadow in spec.rollout.steps",
        1,
        _shadow,
        _limit_shadow,
        # Left out, the steps begin with a shadow.
        f"({_is_given('rollout', 'steps')} ? "
        + _find_largest("rollout", "steps", of="has(item.shadow) ? double(item.shadow) : 0.0")
        + f" : {float(_shadow(_USUAL))!r})",
    ),
)
_BY_NAME = {each.name: each for each in CEILINGS}

# Which pools of Tritons an endpoint may name is no number: the flag has POOLS=NAME|NAME.
POOLS = "pools"
POOL_CEL = f"(has(object.spec.pool) ? object.spec.pool : {DEFAULT_POOL!r})"

# Of the flag that the controller, gateways and loaders have.
FLAG_HELP = (
    "The operator's ceilings over what endpoints ask for, NAME=NUMBER, comma-separated: "
    f"{', '.join(_BY_NAME)}; and {POOLS}=NAME|NAME, the pools of Tritons that they may name."
)


@dataclass(frozen=True)
class Ceilings:
    """What one operator set, by the names of the table; what is not named is not bounded.

    ``pools`` are those that endpoints may name, at least one; None: any.
    """

    most: Mapping[str, float] = field(default_factory=dict)
    pools: tuple[str, ...] | None = None

    @classmethod
    def read(cls, text: str) -> "Ceilings":
        """The ceilings that are written as ``NAME=NUMBER,pools=NAME|NAME``, as flags have them.

        Raises:
            ValueError: a word is no ceiling; the message says why.
        """
        most: dict[str, float] = {}
        pools: tuple[str, ...] | None = None
        for word in filter(None, (part.strip() for part in text.split(","))):
            name, _, text = word.partition("=")
            if name == POOLS:
                pools = _pools(text)
                continue
            known = _BY_NAME.get(name)
            if known is None:
                names = ", ".join((*_BY_NAME, POOLS))
                raise ValueError(f"There is no ceiling {name!r}: there are {names}.")
            try:
                number = float(text)
            except ValueError as error:
                raise ValueError(f"The ceiling {name} needs a number, not {text!r}.") from error
            if not known.least <= number < float("inf"):
                raise ValueError(f"The ceiling {name} is at least {known.least}, not {text}.")
            most[name] = number
        return cls(most, pools)

    def __str__(self) -> str:
        """As ``read`` takes it."""
        words = [f"{name}={most:.12g}" for name, most in self.most.items()]
        if self.pools is not None:
            words.append(f"{POOLS}={'|'.join(self.pools)}")
        return ",".join(words)

    @cached_property
    def _set(self) -> tuple[tuple[Ceiling, float], ...]:
        return tuple((each, self.most[each.name]) for each in CEILINGS if each.name in self.most)

    def list_excesses(self, spec: EndpointSpec) -> tuple[str, ...]:
        """A sentence for each wish above its ceiling, with field, wish and ceiling."""
        wishes = ((each, each.wish(spec), most) for each, most in self._set)
        over = tuple(each.sentence(wish, most) for each, wish, most in wishes if wish > most)
        if self.pools is None or spec.pool in self.pools:
            return over
        names = ", ".join(self.pools)
        return (*over, f"spec.pool is {spec.pool}, and the operator allows only {names}")

    def bound(self, spec: EndpointSpec) -> EndpointSpec:
        """The spec with every wish at its ceiling or below; the same one if none is above.

        In place of a pool that is not allowed it has the first one that is.
        """
        for each, most in self._set:
            if each.wish(spec) > most:
                spec = each.lowered(spec, most)
        if self.pools is not None and spec.pool not in self.pools:
            spec = spec.model_copy(update={"pool": self.pools[0]})
        return spec

    def bounded_endpoint(self, endpoint: ModelEndpoint) -> ModelEndpoint:
        """The endpoint with ``bound`` applied to its spec."""
        spec = self.bound(endpoint.spec)
        return endpoint if spec is endpoint.spec else endpoint.model_copy(update={"spec": spec})

    @property
    def instances(self) -> int | None:
        """Most copies of a model, also if an endpoint names no number."""
        most = self.most.get("instances")
        return None if most is None else int(most)


def _pools(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(filter(None, (part.strip() for part in text.split("|")))))
    wrong = next((name for name in names if not POOL_NAME.fullmatch(name)), None)
    if wrong is not None or not names:
        raise ValueError(f"{POOLS} needs names of pools, such as cpu|gpu, not {wrong or text!r}.")
    return names


NO_CEILINGS = Ceilings()
