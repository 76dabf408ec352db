"""What one fold worker gets through on one core, and what it keeps of it: memory against events.

Asks twice. The arithmetic alone: messages decoded and folded, records encoded, without Kafka. And
the worker itself, a process as it is deployed, on one core: it is started on a topic that is full,
with Kafka on the other core. Two endpoints, two arms, one or two texts an event.
"""

import time
import uuid
from dataclasses import dataclass

import msgspec
from kafka import KafkaAdminClient, KafkaProducer

from bench import machine
from bench.figures import Better, Report, Target
from bench.folding import batch
from bench.metrics import Snapshot
from bench.plan import Plan
from bench.processes import free_port, pin, python, running, running_kafka, said_by
from contracts.events import encode

AT_LEAST = Target(20_000, Better.MORE)
# Of the memory at the end and at a fifth of the events: what grows with the events shows.
FLAT = Target(1.1, Better.LESS)
EVENTS_A_MESSAGE = 100
MESSAGES = 8_000
PARTITIONS = 4
_PATIENCE_SECONDS = 300.0


class Arithmetic(msgspec.Struct):
    """What ``bench.folding`` prints."""

    events_per_cpu_second: float
    megabytes: list[float]  # resident, after each fifth of the time


def run(plan: Plan) -> Report:
    """Measures and reports."""
    report = Report("fold", "one fold worker on one core, 100 events a message")
    alone = [_arithmetic(plan) for _ in range(plan.rounds)]
    with running_kafka(plan) as bootstrap:
        topic = _filled(bootstrap)
        rounds = [_worker(plan, bootstrap, topic) for _ in range(plan.rounds)]
    report.add(
        "arithmetic alone", "events/s", [each.events_per_cpu_second for each in alone], AT_LEAST,
        "events by processor time",
    )  # fmt: skip
    report.add(
        "worker on Kafka, a core", "events/s", [each.events / each.cpu for each in rounds],
        AT_LEAST, "events by the processor time of all its threads, Kafka's client included",
    )  # fmt: skip
    report.add(
        "worker on Kafka, by the clock", "events/s",
        [each.events / each.seconds for each in rounds],
        note=f"{MESSAGES * EVENTS_A_MESSAGE:,} events of a full topic; others may share the core",
    )  # fmt: skip
    report.add("worker's core used", "share", [each.cpu / each.seconds for each in rounds])
    report.add("memory at a fifth of the events", "MB", [each.early for each in rounds])
    report.add("memory at the end", "MB", [each.late for each in rounds])
    report.add("end over a fifth", "ratio", [each.late / each.early for each in rounds], FLAT)
    report.raw += [{"arithmetic": msgspec.to_builtins(each)} for each in alone]
    report.raw += [{"worker": msgspec.to_builtins(each)} for each in rounds]
    return report


@dataclass
class _Round:
    events: float
    seconds: float
    cpu: float
    early: float  # MB
    late: float


def _arithmetic(plan: Plan) -> Arithmetic:
    command = python("bench.folding", "--seconds", str(plan.seconds))
    said = said_by(command, [plan.under_test], plan.seconds + 60)
    return msgspec.json.decode(said, type=Arithmetic)


def _worker(plan: Plan, bootstrap: str, topic: str) -> _Round:
    """One worker, new to the group, from its first message to its last."""
    port, name = free_port(), uuid.uuid4().hex
    command = python(
        "stats.fold_main", f"--kafka-bootstrap={bootstrap}", f"--group={name}",
        f"--predictions-topic={topic}", f"--windows-topic={name}", f"--metrics-port={port}",
    )  # fmt: skip
    url = f"http://127.0.0.1:{port}/metrics"
    with running(command, [plan.under_test], url, plan.folder / f"{name}.log") as pid:
        pin(pid, [plan.under_test])
        began, before, _ = _until(port, pid, 0)
        early = _until(port, pid, MESSAGES // 5)[2]
        ended, after, late = _until(port, pid, MESSAGES - 1)
        return _Round((MESSAGES - 1) * EVENTS_A_MESSAGE, ended - began, after - before, early, late)


def _until(port: int, pid: int, messages: int) -> tuple[float, float, float]:
    """When more messages than this are folded: the time, the processor time, the memory."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while Snapshot.of(port).total("headrace_fold_messages_total") <= messages:
        if time.monotonic() > deadline:
            raise RuntimeError(f"the worker did not fold {messages} messages in time")
        time.sleep(0.02)
    return time.monotonic(), machine.cpu_seconds(pid), machine.resident_megabytes(pid)


def _filled(bootstrap: str) -> str:
    """A topic with all messages, each of another sequence number."""
    topic = "bench-predictions"
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics({topic: {"num_partitions": PARTITIONS}})
    admin.wait_for_topics([topic])
    admin.close()
    producer = KafkaProducer(bootstrap_servers=bootstrap, linger_ms=20, compression_type="lz4")
    made = [encode(batch(number, EVENTS_A_MESSAGE)) for number in range(64)]
    for number in range(MESSAGES):
        value = made[number % 64].replace(b'"gateway":"g"', b'"gateway":"%d"' % number)
        producer.send(topic, value, partition=number % PARTITIONS)
    producer.flush(_PATIENCE_SECONDS)
    producer.close()
    return topic
