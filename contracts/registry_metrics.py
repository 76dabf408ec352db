"""Every metric of the registry's controller and of the loaders: name, kind, labels, help, buckets.

No I/O.
"""

from typing import Final

from contracts.metrics import ENDPOINT, counter, gauge, histogram

_SECONDS: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900)

CONVERSIONS: Final = counter(
    "registry_conversions",
    "Conversions that ended, by how: published, version (its own fault), environment.",
    "outcome",
)
CONVERSION_SECONDS: Final = histogram(
    "registry_conversion_seconds",
    "Time of a conversion, from its start to the package in the store.",
    (),
    _SECONDS,
)
PROMOTIONS: Final = counter("registry_promotions", "Versions that became stable.", ENDPOINT)
ROLLOUT_FAULTS: Final = counter(
    "registry_rollout_faults", "Passes in which an endpoint's rollout broke and held.", ENDPOINT
)
BLOCKED: Final = gauge(
    "registry_blocked_endpoints", "Endpoints whose newest version waits for a retry."
)
SICK_TRITONS: Final = gauge(
    "registry_sick_tritons",
    "1 for a Triton that refuses what is good or does not answer, by its loader.",
    "pool",
    "loader",
)
_WORKSPACE: Final = "workspace"  # of MLflow; empty: the client's own
SOURCE_UP: Final = gauge(
    "registry_source_up", "1 if MLflow answered the last question.", _WORKSPACE
)
SOURCE_ROUND: Final = gauge(
    "registry_source_round_timestamp_seconds",
    "When MLflow was last asked for all and told all that it lacked, unix time; 0: never.",
    _WORKSPACE,
)
SOURCE_MODELS: Final = gauge(
    "registry_source_models", "Registered models that MLflow lists.", _WORKSPACE
)
STORE_UP: Final = gauge(
    "registry_store_up", "1 if the package store answered the last question of the controller."
)
KUBERNETES_AWAY: Final = gauge(
    "registry_kubernetes_away", "1 while the API server does not answer the controller's watch."
)
PASSES: Final = counter("registry_passes", "Passes of the controller's loop.", "outcome")
WRITES_REFUSED: Final = counter(
    "registry_writes_refused",
    "Statuses that could not be written; if the cluster refused one, its rollout ends.",
    ENDPOINT,
)
RECONCILE_SECONDS: Final = histogram(
    "registry_reconcile_seconds",
    "Time of one endpoint's reconcile, from its start to its written status.",
    (),
    (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
)
WAITING: Final = gauge(
    "registry_waiting_endpoints",
    "Endpoints that a pass left waiting for their reconcile, or in it.",
)
PACKAGES_REMOVED: Final = counter(
    "registry_packages_removed", "Packages removed, for nothing needed them."
)
WEBHOOKS: Final = counter(
    "registry_webhooks", "Webhooks received, by what became of them.", "outcome"
)
WEBHOOKS_ARRIVE: Final = gauge(
    "registry_webhooks_arrive",
    "1 while webhooks told of every change that was found, so that MLflow is asked seldom.",
    _WORKSPACE,
)
LOAD_SECONDS: Final = histogram(
    "loader_load_seconds",
    "Time to load a model: fetch, verify, load into Triton, warm up.",
    (),
    _SECONDS,
)
LOAD_FAILURES: Final = counter(
    "loader_load_failures", "Loads that failed, by who is at fault.", "fault"
)
REPORT_BYTES: Final = gauge(
    "loader_report_bytes",
    "Size of the last report, all its Leases together, without heartbeats; 0 outside of a cluster.",
)
MISSING_STABLE: Final = gauge(
    "loader_missing_stable_packages",
    "Stable packages that Triton does not hold: their requests go to other Tritons, or fail.",
)
ASLEEP: Final = gauge(
    "loader_asleep_packages",
    "Stable packages that left Triton because they were idle, and come back with the first caller.",
)
LEFT: Final = counter(
    "loader_packages_left", "Packages unloaded because they were idle, each time counted."
)
TRITON_RESTARTS: Final = counter(
    "loader_triton_restarts", "Times that Triton was found without its models."
)
TRITON_FAULT: Final = gauge(
    "loader_triton_fault",
    "1 while the loader says that Triton should be started again: it hangs, or loads nothing.",
)
