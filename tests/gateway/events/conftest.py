"""Events to record."""

import itertools
from collections.abc import Callable

import pytest
from gateway_world import event_of

from contracts.events import Latency, PredictionEvent, TextRecord

MakeEvent = Callable[..., PredictionEvent]


@pytest.fixture
def make_event() -> MakeEvent:
    """Makes attempts that differ in their request id."""
    numbers = itertools.count()

    def make(
        *, endpoint: str = "sentiment", status: int = 200, texts: int = 1, label: str = "positive"
    ) -> PredictionEvent:
        return event_of(
            *[TextRecord(12, 9, 0, False, label, 0.75)] * texts,
            request_id=f"request-{next(numbers)}",
            time=1_700_000_000.0,
            endpoint=endpoint,
            status=status,
            answered=status == 200,
            latency=Latency(0.0, 0.001, 0.002, 0.003, 0.006),
        )

    return make
