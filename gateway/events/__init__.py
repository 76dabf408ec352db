"""The event stream: every attempt and refusal on its way to Kafka, or counted as dropped.

``buffer`` takes events from requests, ``outbox`` makes numbered messages of them, ``publisher``
sends these from a thread of its own through a ``sink``. None of it can slow a prediction down.
"""
