"""Reads what lies in a topic of a real Kafka."""

from kafka import KafkaConsumer, TopicPartition


def read_topic(bootstrap: str, topic: str) -> dict[int, list[bytes]]:
    """All messages of each partition up to its present end."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    try:
        parts = [TopicPartition(topic, part) for part in consumer.partitions_for_topic(topic) or ()]
        found: dict[int, list[bytes]] = {part.partition: [] for part in parts}
        consumer.assign(parts)
        ends = consumer.end_offsets(parts)
        while any(consumer.position(part) < ends[part] for part in parts):
            for part, records in consumer.poll(timeout_ms=500).items():
                found[part.partition].extend(record.value for record in records)
        return found
    finally:
        consumer.close()
