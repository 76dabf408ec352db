"""The dashboard Gateway: who is let in, what waits, how full batches are, what events are lost."""

from grafana_foundation_sdk.builders.dashboard import Dashboard

from dashboards import queries as q
from dashboards.board import GATEWAY_PLACE, PLACE_COLUMNS, POD_LOGS, PanelRow, Variable, dashboard
from dashboards.panels import (
    GREEN,
    RED,
    YELLOW,
    ColourThreshold,
    buckets,
    lines,
    number,
    rows,
    states,
)

POD = Variable("pod", "Pod", q.PODS, whole=True)
ENDPOINT = Variable("endpoint", "Endpoint", q.ENDPOINTS_AT_GATEWAYS, whole=True)


def gateway() -> Dashboard:
    """Admission, queues and batches, Triton, events, and the statistics that come of them."""
    return dashboard(
        "headrace-gateway",
        "Gateway",
        "The gateways from within, by their own counters: they are here also while Kafka and the"
        " statistics are not.",
        variables=(*GATEWAY_PLACE, ENDPOINT, POD),
        rows=(_admission(), _batches(), _pods(), _events(), _statistics()),
        logs=POD_LOGS,
    )


def _admission() -> PanelRow:
    return PanelRow(
        "Admission",
        number(
            "Gateways ready",
            "Gateways that should get traffic.",
            "0: nobody answers; see the gateway's log and HeadraceGatewayAway.",
            q.READY,
            base=RED,
            steps=(ColourThreshold(1, GREEN),),
        ).height(8),
        lines(
            "Answers",
            "Requests answered or refused a second, by dialect and status.",
            "Statuses other than 200: see refusals beside.",
            q.ANSWERS,
            unit="reqps",
            stacked=True,
            width=10,
        ),
        buckets(
            "Time to the answer",
            "From a request's headers to its answer, refusals included.",
            "Compare with Endpoints: what is here and not there is the way in and out.",
            q.ANSWER_HEATMAP,
            unit="s",
            width=10,
        ),
        lines(
            "Tokens in flight",
            "Tokens of admitted requests, each endpoint, against limits.maxTokensInFlight.",
            "Flat at the limit: what comes on top is refused.",
            q.ADMITTED_TOKENS,
            width=8,
        ),
        lines(
            "Refused",
            "Requests refused a second before any attempt, by reason.",
            "overloaded: add engines; rate_limited: talk to the key's owner; model_unavailable:"
            " see Triton serves.",
            q.G_REFUSED,
            unit="reqps",
            width=8,
        ),
        lines(
            "Time to a refusal",
            "99th percentile of the time until a refused caller knows.",
            "Should stay in milliseconds: a slow no is worse than none.",
            q.REFUSAL_P99,
            unit="s",
            steps=(ColourThreshold(0.1, YELLOW),),
            width=8,
        ),
        lines(
            "Bulk requests",
            "Requests of the class bulk a second, by status; no other panel of endpoints has them.",
            "Mostly 503 and 504: interactive requests leave no idle capacity.",
            q.BULK_REQUESTS,
            unit="reqps",
            width=12,
        ),
        lines(
            "Bulk texts",
            "Texts of answered bulk requests a second, by vector space.",
            "How fast a backfill goes.",
            q.BULK_TEXTS,
            width=12,
        ),
    )


def _batches() -> PanelRow:
    return PanelRow(
        "Queue and batches",
        lines(
            "Texts that wait",
            "Texts that wait for an engine, each package.",
            "Growing without end: the engines are too few.",
            q.QUEUED_ROWS,
            width=8,
        ),
        lines(
            "Wait for a batch",
            "95th percentile of the wait for a batch and an engine.",
            "Should be a small part of the endpoint's timeout.",
            q.WAIT_P95,
            unit="s",
            width=8,
        ),
        lines(
            "Batch fill",
            "Mean texts in a batch, each package.",
            "Low while texts wait: length buckets are too many or too narrow.",
            q.ALL_ROWS_A_BATCH,
            width=8,
        ),
        lines(
            "Padding waste",
            "Share of the engines' tokens that is padding.",
            "Above 30 % for long: set serving.lengthBuckets to the lengths that come.",
            q.ALL_PADDING,
            unit="percentunit",
            steps=(ColourThreshold(0.3, YELLOW), ColourThreshold(0.5, RED)),
            top=1,
            width=8,
        ),
        lines(
            "Tokens to engines",
            "Tokens a second that engines computed: of texts, and padding.",
            "What text tokens the engines reach at most is the endpoint's capacity.",
            q.TOKENS_BY_KIND,
            stacked=True,
            width=8,
        ),
        lines(
            "Tokens at each Triton",
            "Padded tokens in flight to each Triton.",
            "Uneven for long: one is slower; look at its machine.",
            q.TRITON_TOKENS,
            width=8,
        ),
        states(
            "Triton serves",
            "Whether each Triton serves any package, as gateways find by asking. One that lacks"
            " nothing but what is asleep is left out.",
            "away: Triton is down or still loads; see its log, and the loader's.",
            q.SERVING,
            names={"1": ("serves", GREEN), "0": ("away", RED)},
            width=16,
        ),
        lines(
            "Tritons of each package",
            "How many Tritons serve each package, as the gateway that finds fewest does. Those"
            " asleep are left out.",
            "0: its callers get 503; see what the loaders say of it in their logs.",
            q.TRITONS_OF_PACKAGE,
            width=8,
        ),
        lines(
            "Packages asleep",
            "Packages that left their Tritons because they were idle,"
            " and callers that wait for one to come back.",
            "Callers that wait for long: a load fails or Tritons are busy; see the loaders' logs.",
            q.PACKAGES_ASLEEP,
            q.WAITING_FOR_MODELS,
            width=8,
        ),
        lines(
            "Time until a package is back",
            "From the first caller of a package that is asleep until a Triton serves it, 95th"
            " percentile, by whether one did.",
            "given up: no caller waited any longer; raise what callers wait, or have the endpoint"
            " stay with spec.sleeps.",
            q.WAKE_P95,
            unit="s",
            width=16,
        ),
    )


def _pods() -> PanelRow:
    return PanelRow(
        "By pod",
        lines(
            "Requests of each pod",
            "Requests a second that each gateway answered or refused. The variable Pod chooses"
            " gateways here and in Answers, and the link Logs leads to their logs.",
            "Uneven for long: callers keep few connections; let them balance over gateways.",
            q.REQUESTS_OF_POD,
            unit="reqps",
            width=6,
        ),
        lines(
            "Errors of each pod",
            "Share of each gateway's answers that were 5xx, refusals among them.",
            "Only one: choose it above and read its logs; all: see Triton serves.",
            q.ERRORS_OF_POD,
            unit="percentunit",
            width=6,
        ),
        lines(
            "Slowest answers of each pod",
            "95th percentile of the time of answered attempts, each gateway. Points are requests"
            " that were traced, if Prometheus keeps exemplars.",
            "Only one: its node is busy, or it lacks CPU. A point leads to its trace.",
            q.LATENCY_OF_POD,
            unit="s",
            width=6,
        ),
        lines(
            "CPU of gateways",
            "CPU seconds a second of each gateway's process.",
            "Near 1: the event loop is full; add a gateway.",
            q.GATEWAY_CPU,
            steps=(ColourThreshold(0.9, YELLOW),),
            width=6,
        ),
    )


def _events() -> PanelRow:
    return PanelRow(
        "Events",
        number(
            "Kafka",
            "1 while Kafka takes messages of every gateway.",
            "0: events wait, then are dropped and counted; callers notice nothing.",
            q.EVENTS_CONNECTED,
            base=RED,
            steps=(ColourThreshold(1, GREEN),),
        ).height(8),
        lines(
            "Events",
            "Attempts left for the event stream, acknowledged by Kafka, and lost, a second.",
            "Lost above 0: statistics and rollouts miss these requests.",
            q.EVENTS_MADE,
            q.EVENTS_SENT,
            q.EVENTS_LOST,
            unit="ops",
            width=10,
        ),
        lines(
            "Events that wait, failed tries",
            "Events plus texts that wait for Kafka; tries that failed, a second.",
            "Waiting has a bound: what finds no room is lost.",
            q.EVENTS_WAITING,
            q.KAFKA_FAILURES,
            width=10,
        ),
        rows(
            "Lost events",
            "Events that this start of the gateways lost, by endpoint, status and reason. No rows:"
            " none were.",
            "buffer_full, send_failed, shutdown: see Kafka; too_large: a request of very many"
            " texts.",
            q.LOST_BY_REASON,
            {
                **PLACE_COLUMNS,
                "endpoint": "Endpoint",
                "status": "Status",
                "reason": "Reason",
                "Value": "Events",
            },
            width=12,
        ),
        lines(
            "Preprocessors that failed",
            "Requests a second whose own preprocessor failed; they went on without it.",
            "The reason is the error's class; the gateway's log has its line.",
            q.HOOK_FAILURES,
            unit="reqps",
        ),
    )


def _statistics() -> PanelRow:
    return PanelRow(
        "Statistics",
        lines(
            "Fold: lag",
            "Messages of each partition that are not folded yet.",
            "Growing: start another fold worker, up to one a partition.",
            q.FOLD_LAG,
            steps=(ColourThreshold(500, RED),),
            width=8,
        ),
        lines(
            "Fold: events",
            "Events folded a second. Repeats after a rebalance count again here, and nowhere else.",
            "0 while gateways publish: see the fold role's log.",
            q.FOLD_EVENTS,
            unit="ops",
            width=8,
        ),
        lines(
            "Evaluate: behind",
            "Seconds between now and the newest events in the windows, of the slowest partition."
            " Grows too while there is no traffic.",
            "Above minutes under traffic: rollouts and drift wait for it.",
            q.EVALUATE_AGE,
            unit="s",
            width=4,
        ),
        lines(
            "Evaluate: lag",
            "Window records that are not read yet.",
            "Should be near 0 at all times but after a start.",
            q.EVALUATE_LAG,
            width=4,
        ),
    )
