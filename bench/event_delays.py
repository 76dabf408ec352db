"""``python -P -m bench.event_delays``: how long events take from a request's end into Kafka.

Reads every prediction event that a Kafka holds, as of a local stack after load, and prints
quantiles in seconds: of Kafka's time of the message, less when the request arrived and how long it
took. ``contracts.windows.ON_THE_WAY_SECONDS`` has to be above the largest. Gateways and Kafka share
a clock on one machine alone.
"""

import argparse
from contextlib import closing

import numpy as np

from contracts import events
from service.kafka import KafkaAddress
from stats.recounting.raw_log import KafkaRawLog

SHARES = (0.5, 0.9, 0.99, 0.999, 1.0)


def main() -> None:
    """Reads and prints."""
    parser = argparse.ArgumentParser(prog="python -P -m bench.event_delays", description=__doc__)
    parser.add_argument("--kafka", default="127.0.0.1:9092", help="host:port")
    delays = np.array(delays_in(parser.parse_args().kafka))
    print(f"{delays.size:,} events")
    for share in SHARES if delays.size else ():
        print(f"{share:.1%}: {np.quantile(delays, share):.3f} s")


def delays_in(bootstrap: str) -> list[float]:
    """Of each event that is there, seconds."""
    with closing(KafkaRawLog(KafkaAddress.of(bootstrap))) as log:
        ends = log.spans(0.0, 2**40)
        return [
            message.time - event.time - event.latency.total
            for partition, (first, end) in ends.items()
            for message in log.messages(partition, first, end)
            for event in events.decode(message.value).events
        ]


if __name__ == "__main__":
    main()
