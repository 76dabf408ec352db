"""The dashboard Endpoints: what callers get, how fast, and what the engines do for it."""

from grafana_foundation_sdk.builders.dashboard import Dashboard

from dashboards import queries as q
from dashboards.board import ARM, ENDPOINT, PACKAGE, PLACE, VERSION, PanelRow, dashboard, versions
from dashboards.panels import GREEN, RED, YELLOW, ColourThreshold, buckets, lines, number


def endpoints() -> Dashboard:
    """Traffic, errors, latency, batching and GPU."""
    return dashboard(
        "headrace-endpoints",
        "Endpoints",
        "Traffic, errors and latency of each endpoint, version and arm, from exact counts; and the"
        " batches and engines behind them.",
        variables=(*PLACE, ENDPOINT, VERSION, ARM, PACKAGE),
        rows=(_level(), _traffic(), _latency(), _batching_row(), _gpu()),
    )


def _level() -> PanelRow:
    never = " Empty if spec.slo promises none."
    return PanelRow(
        "Service level",
        number(
            "Error budget left",
            "How much of the errors that spec.slo.availability allows in 30 days is left, from the"
            " gateways' own counters." + never,
            "Below 0 the promise is broken: hold rollouts back until it is kept again, or promise"
            " less.",
            q.ERROR_BUDGET,
            unit="percentunit",
            base=RED,
            steps=(ColourThreshold(0, YELLOW), ColourThreshold(0.25, GREEN)),
        ).height(8),
        lines(
            "Errors: how fast the budget goes",
            "Failed requests over those that spec.slo.availability allows, of the last hour and"
            " day: 1 uses the budget up in just 30 days." + never,
            "Lines at 6 and 14.4, where HeadraceErrorsFast pages; 3 for a day is a ticket. See"
            " Attempts by status and Refusals.",
            q.ERROR_BURN_1H,
            q.ERROR_BURN_1D,
            steps=(ColourThreshold(6, YELLOW), ColourThreshold(14.4, RED)),
            width=8,
        ),
        number(
            "Latency budget left",
            "How much of the slow answers that spec.slo.latency allows in 30 days is left." + never,
            "As for errors.",
            q.LATENCY_BUDGET,
            unit="percentunit",
            base=RED,
            steps=(ColourThreshold(0, YELLOW), ColourThreshold(0.25, GREEN)),
        ).height(8),
        lines(
            "Latency: how fast the budget goes",
            "Answers that came too late over those that spec.slo.latency allows, of the last hour"
            " and day." + never,
            "Lines at 6 and 14.4, where HeadraceLatencyFast pages. See Where the time goes.",
            q.LATENCY_BURN_1H,
            q.LATENCY_BURN_1D,
            steps=(ColourThreshold(6, YELLOW), ColourThreshold(14.4, RED)),
            width=8,
        ),
    )


def _traffic() -> PanelRow:
    return PanelRow(
        "Traffic and errors",
        number(
            "Answered a second",
            "Requests answered a second, each endpoint.",
            "A sudden 0 with callers at work: look at the Gateway dashboard's refusals and at"
            " whether the evaluate role reads (Gateway, row Statistics).",
            q.REQUESTS_NOW,
            unit="reqps",
        ),
        versions().span(20).height(4),
        lines(
            "Requests answered",
            "Answers a second that callers got, by version and arm. Each request counts once,"
            " whichever version answered it.",
            "A rise that the engines can't follow shows as waiting and refusals; add replicas of"
            " Triton.",
            q.REQUESTS,
            unit="reqps",
        ),
        lines(
            "Texts",
            "Texts a second in all attempts, copies for a shadow included.",
            "Texts rising while requests don't: a caller sends larger requests; see token lengths"
            " on the Drift dashboard.",
            q.TEXTS,
            unit="ops",
        ),
        lines(
            "Attempts by status",
            "Attempts a second by HTTP status: 200 answered, 4xx the caller's, 5xx ours, 499 the"
            " caller hung up.",
            "502 and 503 come from Triton (see Gateway, Triton serves); 504 means too slow for the"
            " endpoint's timeout.",
            q.ATTEMPTS_BY_STATUS,
            unit="reqps",
            stacked=True,
        ),
        lines(
            "Error share",
            "Share of attempts that ended 5xx, each version and arm. What is too much, the row"
            " Service level says.",
            "On a canary the rollout rolls back by itself. On stable: read the gateway's log for"
            " the request ids, then Triton's.",
            q.ERROR_SHARE,
            unit="percentunit",
        ),
        lines(
            "Refusals",
            "Requests a second that an endpoint refused before any attempt, by reason.",
            "overloaded: add engines or raise limits.maxTokensInFlight; rate_limited: one key asks"
            " too often; the others are the callers' own mistakes.",
            q.REFUSALS,
            unit="reqps",
            width=24,
        ),
    )


def _latency() -> PanelRow:
    return PanelRow(
        "Latency",
        buckets(
            "Time of attempts",
            "How many attempts took how long, from the request's headers to the decoded answer.",
            "A second band above the first one: some requests wait for something else; compare"
            " with the stages beside and with token lengths.",
            q.LATENCY_HEATMAP,
            unit="s",
        ),
        lines(
            "Quantiles",
            "Median, 95th and 99th percentile of the same, within 28 % of the true value (exact"
            " windows are within 5 %: headrace stats, and /ui).",
            "Without spec.slo.latency, the alert HeadraceSlow begins at 0.5 s for the 95th. Look"
            " which stage grew.",
            q.LATENCY_P50,
            q.LATENCY_P95,
            q.LATENCY_P99,
            unit="s",
            steps=(ColourThreshold(0.5, RED),),
        ),
        lines(
            "Where the time goes",
            "Mean seconds in each stage: queue (before tokenising), tokenise, wait (for a batch"
            " and an engine), infer.",
            "wait grows first when engines are short; queue and tokenise when the gateway's CPU"
            " is; infer when texts get longer or Triton is shared.",
            q.LATENCY_STAGES,
            unit="s",
            stacked=True,
            width=24,
        ),
    )


def _batching_row() -> PanelRow:
    return PanelRow(
        "Batches and engines",
        lines(
            "Rows a batch",
            "Mean texts in a batch, each package.",
            "1 under load means that batching does not work: look at length buckets and at the"
            " endpoint's timeout.",
            q.ROWS_A_BATCH,
            width=8,
        ),
        lines(
            "Padding",
            "Share of the engines' tokens that is padding, not text.",
            "Above 30 % for long: set serving.lengthBuckets to the lengths that callers send.",
            q.PADDING_SHARE,
            unit="percentunit",
            steps=(ColourThreshold(0.3, YELLOW), ColourThreshold(0.5, RED)),
            top=1,
            width=8,
        ),
        lines(
            "Engines busy",
            "Engine seconds a second: 1 is one instance at work all the time.",
            "Near the number of instances: add instances or replicas before callers wait.",
            q.ENGINE_BUSY,
            width=8,
        ),
        lines(
            "Triton: wait for an instance",
            "Mean seconds that a batch waits inside Triton.",
            "The gateway sends no more than engines can take: a wait here means that somebody else"
            " uses this Triton too.",
            q.TRITON_QUEUE,
            unit="s",
        ),
        lines(
            "Triton: compute",
            "Mean seconds of a batch on the engine.",
            "Growing at equal lengths: the machine is shared or throttled.",
            q.TRITON_COMPUTE,
            unit="s",
        ),
    )


def _gpu() -> PanelRow:
    never = " Empty if Triton has no GPU."
    return PanelRow(
        "GPU",
        lines(
            "GPU busy",
            "Share of time in which a GPU worked." + never,
            "Above 90 % while callers wait: add a GPU.",
            q.GPU_BUSY,
            unit="percentunit",
            steps=(ColourThreshold(0.9, YELLOW),),
            top=1,
            width=6,
        ),
        lines(
            "GPU memory",
            "Share of a GPU's memory in use." + never,
            "Above 90 %: the next version may not fit beside the old one; lower serving.instances"
            " or unload what is pinned.",
            q.GPU_MEMORY,
            unit="percentunit",
            steps=(ColourThreshold(0.9, RED),),
            top=1,
            width=6,
        ),
        lines(
            "GPU power",
            "Watts that a GPU takes." + never,
            "Flat at its limit: it is throttled, and latency follows.",
            q.GPU_POWER,
            unit="watt",
            width=6,
        ),
        lines(
            "Packed engines: useful work",
            "Share of time in which a packed engine's device computed its runs, and share of their"
            " tokens that are texts. Empty if no engine is packed.",
            "Busy above 90 % with few tokens of texts: runs are small; fewer gateways, or more"
            " texts a request, fill them better. Busy with texts: add a GPU.",
            q.PACKED_BUSY,
            q.PACKED_USEFUL,
            unit="percentunit",
            top=1,
            width=6,
        ),
    )
