"""OpenTelemetry's conventions for generative AI: names of spans, attributes and histograms.

They are experimental, so that they are used only if the field's variable asks for them. A name that
they do not have, such as a classification's, is the task's own. They hold no text of a caller.
"""

from collections.abc import Mapping
from typing import Any

from contracts.events import PredictionEvent
from contracts.tasks import Task

VARIABLE = "OTEL_SEMCONV_STABILITY_OPT_IN"
OPT_IN = "gen_ai_latest_experimental"

_OPERATIONS = {
    Task.TEXT_GENERATION: "text_completion",
    Task.TEXT_EMBEDDING: "embeddings",
    Task.SPARSE_EMBEDDING: "embeddings",
    Task.HYBRID_EMBEDDING: "embeddings",
    Task.MULTI_VECTOR_EMBEDDING: "embeddings",
}
# The conventions' own, seconds and tokens.
_SECONDS = [0.01 * 2**power for power in range(14)]
_TOKENS = [4.0**power for power in range(14)]


def is_asked_for(opt_in: str) -> bool:
    """Whether the variable's value, names with commas between, has ours."""
    return OPT_IN in (name.strip() for name in opt_in.split(","))


def describe(event: PredictionEvent, task: Task) -> dict[str, Any]:
    """The attributes that an attempt's span and its measurements share."""
    found = {
        "gen_ai.operation.name": _OPERATIONS.get(task, task.value),
        "gen_ai.provider.name": "headrace",
        "gen_ai.request.model": event.endpoint,
        "gen_ai.response.model": f"{event.endpoint}-v{event.version}",
    }
    return found | {"error.type": str(event.status)} if event.status >= 400 else found


def describe_answer(event: PredictionEvent) -> dict[str, Any]:
    """The attributes of the span only: its request and what it used."""
    found: dict[str, Any] = {"gen_ai.response.id": event.request_id}
    found |= {f"gen_ai.usage.{kind}_tokens": count for kind, count in count_tokens(event).items()}
    reasons = [text.label or "" for text in event.texts if text.generated is not None]
    return found | {"gen_ai.response.finish_reasons": reasons} if reasons else found


def count_tokens(event: PredictionEvent) -> Mapping[str, int]:
    """Tokens of the texts (``input``) and of those that were written after them (``output``)."""
    if not event.texts:
        return {}
    found = {"input": sum(text.tokens for text in event.texts)}
    written = [text.generated for text in event.texts if text.generated is not None]
    return found | {"output": sum(written)} if written else found


class GenAiHistograms:
    """Durations and tokens of the requests that callers got an answer to, failures included."""

    def __init__(self, provider: Any) -> None:  # noqa: ANN401
        meter = provider.get_meter("headrace.gateway")
        self._duration = meter.create_histogram(
            "gen_ai.server.request.duration",
            unit="s",
            description="Seconds from a request's arrival to its answer.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )
        self._tokens = meter.create_histogram(
            "gen_ai.client.token.usage",
            unit="{token}",
            description="Tokens of a request's texts, and of those written after them.",
            explicit_bucket_boundaries_advisory=_TOKENS,
        )

    def record(self, event: PredictionEvent, attributes: Mapping[str, Any], context: Any) -> None:  # noqa: ANN401
        """Counts one; ``context`` is its span's, which becomes an exemplar, or None."""
        self._duration.record(event.latency.total, attributes, context)
        for kind, count in count_tokens(event).items():
            self._tokens.record(count, {**attributes, "gen_ai.token.type": kind}, context)
