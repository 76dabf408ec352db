"""The event stream in one piece: what the gateway's main makes, starts, measures and closes.

Its ``recorder`` goes to the handler; nothing else of it is used by requests.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from contracts.events import Dropped
from gateway.events.buffer import EventBuffer
from gateway.events.outbox import Outbox
from gateway.events.publisher import Pace, Publisher
from gateway.events.sink import EventSink
from gateway.recording import Recorder


@dataclass(frozen=True)
class StreamSettings:
    """Bounds of the stream.

    Attributes:
        buffer_records: events plus texts that may wait; about 350 bytes of memory each.
        message_events: events a message, at most.
        message_records: events plus texts a message, at most.
        message_bytes: size of an encoded message, at most.
        pace: when messages are sent.
    """

    buffer_records: int = 100_000
    message_events: int = 500
    message_records: int = 4000
    message_bytes: int = 900_000
    pace: Pace = field(default_factory=Pace)


class EventStream(Collector):
    """Buffer, outbox and publisher of one gateway process.

    Args:
        sink: Kafka, or a stand-in.
        gateway: unique for each start of a gateway process.
        settings: bounds.
    """

    def __init__(
        self, sink: EventSink, *, gateway: str, settings: StreamSettings | None = None
    ) -> None:
        bounds = settings or StreamSettings()
        self._buffer = EventBuffer(
            capacity_records=bounds.buffer_records, wake_events=bounds.message_events
        )
        self._outbox = Outbox(
            self._buffer,
            gateway=gateway,
            max_events=bounds.message_events,
            max_records=bounds.message_records,
            max_bytes=bounds.message_bytes,
        )
        self._publisher = Publisher(self._buffer, self._outbox, sink, pace=bounds.pace)

    @property
    def recorder(self) -> Recorder:
        """Where the handler leaves what happened."""
        return self._buffer

    def start(self) -> None:
        """Starts publishing; the sink need not be up."""
        self._publisher.start()

    def close(self, timeout_seconds: float) -> list[Dropped]:
        """Sends what waits, for so long at most; blocks. Returns all losses since the start."""
        return self._publisher.close(timeout_seconds)

    def collect(self) -> Iterator[Metric]:
        """The stream's account, read when Prometheus asks: requests pay nothing for it."""
        totals, published = self._buffer.totals(), self._outbox.published
        counts = self._publisher.counts
        yield _counter("events", "Attempts recorded for the event stream.", totals.events)
        yield _counter("event_refusals", "Refusals recorded for the event stream.", totals.refusals)
        yield _counter("events_published", "Events acknowledged by the sink.", published.events)
        yield _counter(
            "event_refusals_published", "Refusals acknowledged by the sink.", published.refusals
        )
        yield _counter(
            "event_messages_published", "Messages acknowledged by the sink.", published.messages
        )
        yield _counter(
            "event_bytes_published", "Bytes acknowledged, before compression.", published.bytes
        )
        yield _counter(
            "event_send_failures", "Messages not acknowledged, sent again.", counts.unavailable
        )
        yield _counter("event_messages_refused", "Messages the sink won't take.", counts.refused)
        dropped = CounterMetricFamily(
            "headrace_gateway_events_dropped",
            "Events and refusals lost, by their status and why.",
            labels=("endpoint", "status", "reason"),
        )
        for loss in self._buffer.dropped():
            dropped.add_metric((loss.endpoint, str(loss.status), loss.reason), loss.count)
        yield dropped
        yield GaugeMetricFamily(
            "headrace_gateway_event_buffer_records",
            "Events plus texts that wait to be acknowledged.",
            totals.waiting,
        )
        yield GaugeMetricFamily(
            "headrace_gateway_event_sink_up",
            "Whether the last message was acknowledged.",
            float(counts.connected),
        )


def _counter(name: str, help_text: str, value: float) -> CounterMetricFamily:
    return CounterMetricFamily(f"headrace_gateway_{name}", help_text, value)
