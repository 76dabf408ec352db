"""The registry's metrics, declared once: names, units and help.

Written by the controller and the loader, shown on ``/metrics`` by each service's main.
"""

from prometheus_client import Counter, Gauge, Histogram

from contracts.metrics import WRITE_BACK_FAILURES as _WRITE_BACK_FAILURES

_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900)

CONVERSIONS = Counter(
    "headrace_registry_conversions_total",
    "Conversions that ended, by how: published, version (its own fault), environment.",
    ["outcome"],
)
CONVERSION_SECONDS = Histogram(
    "headrace_registry_conversion_seconds",
    "Time of a conversion, from its start to the package in the store.",
    buckets=_SECONDS,
)
PROMOTIONS = Counter(
    "headrace_registry_promotions_total", "Versions that became stable.", ["endpoint"]
)
ROLLOUT_FAULTS = Counter(
    "headrace_registry_rollout_faults_total",
    "Passes in which an endpoint's rollout broke and held.",
    ["endpoint"],
)
BLOCKED = Gauge(
    "headrace_registry_blocked_endpoints", "Endpoints whose newest version waits for a retry."
)
SOURCE_UP = Gauge("headrace_registry_source_up", "1 where MLflow answered the last question.")
SOURCE_ROUND = Gauge(
    "headrace_registry_source_round_timestamp_seconds",
    "When MLflow was last asked for all and told all that it lacked, unix time; 0: never.",
)
WRITE_BACK_FAILURES = Counter(_WRITE_BACK_FAILURES.name, _WRITE_BACK_FAILURES.help)
PASSES = Counter("headrace_registry_passes_total", "Passes of the controller's loop.", ["outcome"])
PACKAGES_REMOVED = Counter(
    "headrace_registry_packages_removed_total", "Packages removed, for nothing needed them."
)
WEBHOOKS = Counter(
    "headrace_registry_webhooks_total", "Webhooks received, by what became of them.", ["outcome"]
)
LOAD_SECONDS = Histogram(
    "headrace_loader_load_seconds",
    "Time to load a model: fetch, verify, load into Triton, warm up.",
    buckets=_SECONDS,
)
LOAD_FAILURES = Counter(
    "headrace_loader_load_failures_total", "Loads that failed, by who is at fault.", ["fault"]
)
MISSING_STABLE = Gauge(
    "headrace_loader_missing_stable_packages",
    "Stable packages that Triton does not hold: their requests go to other Tritons, or fail.",
)
TRITON_RESTARTS = Counter(
    "headrace_loader_triton_restarts_total", "Times that Triton was found without its models."
)

# What may come is at 0 until it does: a rate sees the first one only as a rise.
for _outcome in ("published", "version", "environment"):
    CONVERSIONS.labels(_outcome)
for _outcome in ("whole", "cut short"):
    PASSES.labels(_outcome)
for _fault in ("version", "environment"):
    LOAD_FAILURES.labels(_fault)
