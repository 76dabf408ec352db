"""How many prediction events a second one core folds: ``python -P -m bench.folding``.

Run by the suite ``fold``. Decodes and folds messages as the fold role does, without Kafka: two
endpoints, two arms, one or two texts an event, two windows. Prints one JSON object.
"""

import argparse
import json
import os
import random
from time import perf_counter, process_time

from bench.machine import resident_megabytes
from contracts.endpoint import Arm
from contracts.events import EventBatch, Latency, PredictionEvent, TextRecord, encode
from contracts.windows import encode as encode_record
from measures.ranges import PartitionFold

_LABELS = ("negative", "neutral", "positive")


def main() -> None:
    """Folds the same messages until the time is over and prints events a second of CPU."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="time to fold for")
    parser.add_argument("--events", type=int, default=100, help="events a message")
    parser.add_argument("--write-every", type=int, default=10, help="messages between two records")
    options = parser.parse_args()
    messages = [encode(batch(number, options.events)) for number in range(64)]
    fold = PartitionFold("t", 0, first=0, window_seconds=10)
    offset = size = 0
    megabytes: list[float] = []
    wall, cpu = perf_counter(), process_time()
    while (passed := perf_counter() - wall) < options.seconds:
        if passed > options.seconds * (len(megabytes) + 1) / 5:
            megabytes.append(resident_megabytes(os.getpid()))
        # Of another gateway each time round, or it would be a copy.
        message = messages[offset % 64].replace(b'"gateway":"g"', b'"gateway":"%d"' % offset)
        complete = fold.take(offset, 1e9 + offset, message)
        growing = fold.growing() if offset % options.write_every == 0 else None
        for record in (*complete, *([] if growing is None else [growing])):
            size = len(encode_record(record))
        offset += 1
    wall, cpu = perf_counter() - wall, process_time() - cpu
    megabytes.append(resident_megabytes(os.getpid()))
    result = {
        "events": offset * options.events,
        "events_per_cpu_second": round(offset * options.events / cpu),
        "events_per_second": round(offset * options.events / wall),
        "message_bytes": len(messages[0]),
        "last_record_bytes": size,
        "megabytes": megabytes,
    }
    print(json.dumps(result, indent=2))


def batch(sequence: int, events: int) -> EventBatch:
    """A message of so many events."""
    random_ = random.Random(sequence)
    return EventBatch("g", sequence, [_event(random_, sequence) for _ in range(events)])


def _event(random_: random.Random, sequence: int) -> PredictionEvent:
    canary = random_.random() < 0.2
    total = random_.lognormvariate(-4, 0.5)
    return PredictionEvent(
        request_id=f"{random_.getrandbits(128):032x}",
        time=1e9 + sequence / 5 + random_.random(),
        endpoint=random_.choice(("sentiment", "topics")),
        version="2" if canary else "1",
        package=("b" if canary else "a") * 64,
        arm=Arm.CANARY if canary else Arm.STABLE,
        status=500 if random_.random() < 0.01 else 200,
        answered=True,
        latency=Latency(0.0001, 0.0002, total / 4, total / 2, total),
        texts=[_text(random_) for _ in range(random_.choice((1, 1, 2)))],
        caller=random_.getrandbits(63),
    )


def _text(random_: random.Random) -> TextRecord:
    words = random_.randint(1, 60)
    return TextRecord(
        words + random_.randint(2, 20),
        words,
        random_.randint(0, 2),
        truncated=False,
        label=random_.choice(_LABELS),
        score=random_.random(),
    )


if __name__ == "__main__":
    main()
