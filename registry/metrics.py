"""What the registry's controller and the loaders count, on ``/metrics`` of each.

The metrics are declared in ``contracts.registry_metrics``.
"""

from prometheus_client import Counter, Gauge, Histogram

from contracts import registry_metrics as m
from contracts.metrics import WRITE_BACK_FAILURES as WRITE_BACK
from contracts.metrics import Metric


def _counter(metric: Metric) -> Counter:
    return Counter(metric.name, metric.help, metric.labels)


def _gauge(metric: Metric) -> Gauge:
    return Gauge(metric.name, metric.help, metric.labels)


def _histogram(metric: Metric) -> Histogram:
    return Histogram(metric.name, metric.help, metric.labels, buckets=metric.buckets)


CONVERSIONS = _counter(m.CONVERSIONS)
CONVERSION_SECONDS = _histogram(m.CONVERSION_SECONDS)
PROMOTIONS = _counter(m.PROMOTIONS)
ROLLOUT_FAULTS = _counter(m.ROLLOUT_FAULTS)
BLOCKED = _gauge(m.BLOCKED)
SICK_TRITONS = _gauge(m.SICK_TRITONS)
SOURCE_UP = _gauge(m.SOURCE_UP)
STORE_UP = _gauge(m.STORE_UP)
KUBERNETES_AWAY = _gauge(m.KUBERNETES_AWAY)
SOURCE_ROUND = _gauge(m.SOURCE_ROUND)
SOURCE_MODELS = _gauge(m.SOURCE_MODELS)
WRITE_BACK_FAILURES = _counter(WRITE_BACK)
PASSES = _counter(m.PASSES)
WRITES_REFUSED = _counter(m.WRITES_REFUSED)
RECONCILE_SECONDS = _histogram(m.RECONCILE_SECONDS)
WAITING = _gauge(m.WAITING)
PACKAGES_REMOVED = _counter(m.PACKAGES_REMOVED)
WEBHOOKS = _counter(m.WEBHOOKS)
WEBHOOKS_ARRIVE = _gauge(m.WEBHOOKS_ARRIVE)
LOAD_SECONDS = _histogram(m.LOAD_SECONDS)
LOAD_FAILURES = _counter(m.LOAD_FAILURES)
REPORT_BYTES = _gauge(m.REPORT_BYTES)
MISSING_STABLE = _gauge(m.MISSING_STABLE)
ASLEEP = _gauge(m.ASLEEP)
LEFT = _counter(m.LEFT)
TRITON_RESTARTS = _counter(m.TRITON_RESTARTS)
TRITON_FAULT = _gauge(m.TRITON_FAULT)

# What may come is at 0 until it does: a rate sees the first one only as a rise.
for _outcome in ("published", "version", "environment"):
    CONVERSIONS.labels(_outcome)
for _outcome in ("whole", "cut short"):
    PASSES.labels(_outcome)
for _fault in ("version", "environment"):
    LOAD_FAILURES.labels(_fault)
