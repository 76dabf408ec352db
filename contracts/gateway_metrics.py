"""Every metric of a gateway: name, kind, labels, help, buckets.

They count as requests pass, whatever becomes of Kafka: alerts on traffic read them. No I/O.
"""

from typing import Final

from contracts.metrics import ARM, ENDPOINT, VERSION, counter, gauge, histogram

_SECONDS: Final = (
    0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1,
    0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0,
)  # fmt: skip

# Counted in the gateway, request by request.

REQUESTS: Final = counter("gateway_requests", "Requests answered or refused.", "dialect", "status")
REQUEST_SECONDS: Final = histogram(
    "gateway_request_seconds",
    "Time from a request's headers to its answer.",
    (
        "dialect",
        "status",
    ),
    _SECONDS,
)
ATTEMPTS: Final = counter(
    "gateway_attempts", "Attempts on a version.", ENDPOINT, VERSION, ARM, "status"
)
REFUSALS: Final = counter(
    "gateway_refusals",
    "Requests that an endpoint refused before any attempt.",
    ENDPOINT,
    "status",
    "reason",
)
REFUSAL_SECONDS: Final = histogram(
    "gateway_refusal_seconds",
    "Time from a request's arrival to its refusal.",
    (ENDPOINT,),
    _SECONDS,
)
SHADOWS: Final = counter(
    "gateway_shadows",
    "Copies of requests for a candidate, by what became of them: sent, or why not.",
    ENDPOINT,
    "outcome",
)
SPACE_NAMED: Final = counter(
    "gateway_space_named",
    "Answers to callers who named a vector space, or the next one, by the space that they got.",
    ENDPOINT,
    "space",
)
BULK_REQUESTS: Final = counter(
    "gateway_bulk_requests",
    "Requests of the class bulk, answered or refused; attempts and refusals are without them.",
    ENDPOINT,
    "status",
)
BULK_TEXTS: Final = counter(
    "gateway_bulk_texts",
    "Texts of answered requests of the class bulk, by the vector space that they got.",
    ENDPOINT,
    "space",
)
SPACE_UNNAMED: Final = counter(
    "gateway_space_unnamed",
    "Answers to callers who named no vector space while the next one waited for its cutover.",
    ENDPOINT,
)
PREPROCESSOR_FAILURES: Final = counter(
    "gateway_preprocessor_failures",
    "Requests whose own preprocessor failed; they went on without it.",
    ENDPOINT,
    "reason",
)
CODE_FAILURES: Final = counter(
    "gateway_model_code_failures",
    "Failures of the code that a version brings, by what went wrong.",
    ENDPOINT,
    VERSION,
    "reason",
)
CODE_SECONDS: Final = histogram(
    "gateway_model_code_seconds",
    "Time of answered calls of the code that a version brings, waiting for it included.",
    (
        ENDPOINT,
        VERSION,
        "part",
    ),
    _SECONDS,
)
TOKENISER_SECONDS: Final = histogram(
    "gateway_tokeniser_opening_seconds",
    "Time from the first need of a tokeniser until its process answers.",
    (),
    _SECONDS,
)
STAGE_SECONDS: Final = histogram(
    "gateway_stage_seconds",
    "Time that answered attempts spent in each stage.",
    (
        ENDPOINT,
        "stage",
    ),
    _SECONDS,
)
TEXTS: Final = counter("gateway_texts", "Texts of answered attempts.", ENDPOINT, VERSION)
TOKENS: Final = counter("gateway_tokens", "Tokens of answered attempts.", ENDPOINT, VERSION)
BATCHES: Final = counter("gateway_batches", "Batches answered.", "model")
BATCH_ROWS: Final = counter("gateway_batch_rows", "Rows of answered batches.", "model")
BATCH_TOKENS: Final = counter(
    "gateway_batch_tokens",
    "Tokens of answered batches, by whether they are of a text or padding.",
    "model",
    "kind",
)
ENGINE_SECONDS: Final = counter(
    "gateway_engine_seconds", "Engine time of answered batches.", "model"
)
SPLIT_BATCHES: Final = counter(
    "gateway_split_batches",
    "Batches that a model failed at and whose callers were tried in halves.",
    "model",
)
FAILED_TEXTS: Final = counter(
    "gateway_failed_texts",
    "Texts that a model failed at, singly or in a batch that was not split any further.",
    "model",
)

# Read from those who keep the numbers, when Prometheus asks.

CODE_RUNNING: Final = gauge(
    "gateway_model_code_running",
    "1 while a process runs the code that a version brings.",
    ENDPOINT,
    VERSION,
)
CODE_STARTS: Final = counter(
    "gateway_model_code_starts",
    "Starts of that process; more than 1 after failures.",
    ENDPOINT,
    VERSION,
)
CODE_WAITING: Final = gauge(
    "gateway_model_code_waiting", "Calls that wait for that process.", ENDPOINT, VERSION
)
CACHE_TEXTS: Final = counter(
    "gateway_cache_texts",
    "Texts of endpoints with a cache: kept (hit), on their way already (joined), inferred (miss).",
    ENDPOINT,
    "outcome",
)
CACHE_BYTES: Final = gauge("gateway_cache_bytes", "Memory that kept answers take.", ENDPOINT)

TOKENISERS_OPEN: Final = gauge(
    "gateway_tokenisers_open",
    "Tokenisers that are open: in this process (here), or each in one of its own (apart).",
    "where",
)
TOKENISER_BYTES: Final = gauge(
    "gateway_tokeniser_bytes",
    "Memory that they take: estimated from their files (here), measured (apart).",
    "where",
)
TOKENISERS_OPENED: Final = counter(
    "gateway_tokenisers_opened", "Tokenisers opened in a process of their own."
)
TOKENISERS_CLOSED: Final = counter(
    "gateway_tokenisers_closed", "Such processes ended: for another, or as nobody needs them."
)
TOKENISERS_FAILED: Final = counter(
    "gateway_tokenisers_failed", "Failed tries to open a tokeniser in a process of its own."
)
TOKENISER_WAITING: Final = gauge(
    "gateway_tokeniser_waiting", "Requests that wait for a tokeniser to be opened."
)
TOKENS_IN_FLIGHT: Final = gauge(
    "gateway_tokens_in_flight", "Tokens of requests on their way.", ENDPOINT
)
QUEUED_ROWS: Final = gauge("gateway_lane_rows", "Texts that wait for an engine.", "model")
# By Triton and by package, never by both: a gateway would have a series for each pair.
REPLICA_SERVES: Final = gauge(
    "gateway_replica_serves", "1 while a Triton serves any package.", "triton"
)
REPLICA_TOKENS: Final = gauge(
    "gateway_replica_tokens", "Padded tokens in flight.", "triton", "pool"
)
TRITON_PACKAGES: Final = gauge(
    "gateway_triton_packages", "Packages that a Triton serves.", "triton"
)
PACKAGE_TRITONS: Final = gauge("gateway_package_tritons", "Tritons that serve a package.", "model")
ASLEEP: Final = gauge(
    "gateway_asleep_packages", "Packages that no Triton need hold, as nobody has asked for long."
)
WAITING_FOR_MODELS: Final = gauge(
    "gateway_waiting_for_models", "Callers that wait for such a package to come back."
)
WAKE_SECONDS: Final = histogram(
    "gateway_wake_seconds",
    "Time from the first caller of such a package until a Triton serves it, by whether one did.",
    ("outcome",),
    (0.1, 0.5, 1, 2, 3, 5, 10, 20, 30, 60, 120),
)
READY: Final = gauge("gateway_ready", "1 while this gateway should get traffic.")
CONTROLLER_SILENT: Final = gauge(
    "gateway_controller_silent_seconds", "Time since this gateway saw a sign of the controller."
)
WITHHELD: Final = gauge(
    "gateway_candidate_withheld",
    "1 while stable takes a candidate's callers, because the controller gives no sign.",
    ENDPOINT,
)
SLO_AVAILABILITY: Final = gauge(
    "gateway_slo_availability_ratio",
    "Share of requests that spec.slo promises to answer without a 5xx.",
    ENDPOINT,
)
# With the label of a bucket of STAGE_SECONDS, so that a rule finds the answers within the time by
# a join. Prometheus 3 writes that of 1 s as 1.0, earlier ones as 1: such a series is there twice.
SLO_LATENCY: Final = gauge(
    "gateway_slo_latency_ratio",
    "Share of answers that spec.slo promises within le seconds.",
    ENDPOINT,
    "le",
)
ENDPOINTS_KEPT: Final = gauge(
    "gateway_kept_endpoints_seconds",
    "Age of the endpoints while they are from this gateway's disk, or a bug keeps newer ones out; "
    "0 from their source.",
)
KEY_LINES_BROKEN: Final = gauge(
    "gateway_key_lines_broken", "Lines of the key file that are broken and open nothing."
)
PEERS: Final = gauge("gateway_peers", "Gateways that share the rates of keys, this one among them.")
EVENTS_WAITING: Final = gauge(
    "gateway_event_records", "Events, texts and values that wait for Kafka."
)
EVENTS_CONNECTED: Final = gauge("gateway_events_connected", "1 while Kafka takes messages.")
EVENTS: Final = counter("gateway_events", "Attempts left for the event stream.")
EVENTS_PUBLISHED: Final = counter("gateway_events_published", "Attempts that Kafka acknowledged.")
EVENTS_DROPPED: Final = counter(
    "gateway_events_dropped", "Events lost.", ENDPOINT, "status", "reason"
)
EVENTS_LOST: Final = counter("gateway_events_lost", "Events lost, all in one, from 0 on.")
FEEDBACK: Final = counter("gateway_feedback", "True labels left for the event stream.")
FEEDBACK_PUBLISHED: Final = counter(
    "gateway_feedback_published", "True labels that Kafka acknowledged."
)
EVENT_MESSAGES: Final = counter("gateway_event_messages", "Messages that Kafka acknowledged.")
EVENT_FAILURES: Final = counter("gateway_event_failures", "Failed tries to reach Kafka.")


def names_of_edge(edge: float) -> tuple[str, ...]:
    """How the label ``le`` of an edge of a histogram may be written.

    >>> names_of_edge(0.5), names_of_edge(1.0)
    (('0.5',), ('1', '1.0'))
    """
    short = f"{edge:g}"
    return (short, f"{short}.0") if edge.is_integer() else (short,)
