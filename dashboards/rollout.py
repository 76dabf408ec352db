"""The dashboard Rollout: where a new version is, both arms side by side, and what checks say."""

from grafana_foundation_sdk.builders.dashboard import Dashboard

from dashboards import queries as q
from dashboards.board import (
    ARM,
    PLACE_COLUMNS,
    ROUTED_ENDPOINT,
    ROUTED_PLACE,
    VERSION,
    PanelRow,
    dashboard,
    versions,
)
from dashboards.panels import (
    BLUE,
    GREEN,
    GREY,
    RED,
    YELLOW,
    ColourThreshold,
    bars,
    buckets,
    lines,
    number,
    rows,
    states,
)

VERDICTS = {"-1": ("fail", RED), "0": ("unknown", GREY), "1": ("pass", GREEN)}


def rollout() -> Dashboard:
    """Weights and phases, arms, checks; then the way to Loaded."""
    return dashboard(
        "headrace-rollout",
        "Rollout",
        "How a new version gets to all callers: its weight and phase, what the checks say, and the"
        " version beside the one that it is compared with.",
        variables=(*ROUTED_PLACE, ROUTED_ENDPOINT, VERSION, ARM),
        rows=(_course(), _arms(), _shadow(), _before_row()),
    )


def _course() -> PanelRow:
    return PanelRow(
        "Course",
        rows(
            "Now",
            "The newest version of each endpoint and its phase.",
            "headrace rollout status ENDPOINT says why it is there and what it waits for.",
            q.PHASE_NOW,
            {**PLACE_COLUMNS, "endpoint": "Endpoint", "version": "Version", "phase": "Phase"},
            width=8,
            height=6,
        ),
        versions().span(16),
        lines(
            "Weights",
            "Share of callers that each version answers; for a shadow, the share of requests"
            " copied to it.",
            "A canary that does not move waits for a check: see verdicts.",
            q.WEIGHTS,
            unit="percentunit",
            top=1,
        ),
        states(
            "Phases",
            "The phase of each version over time.",
            "RolledBack and Rejected are final for a version: register a better one, or headrace"
            " rollout retry. Expired came to no verdict: headrace rollout history says what traffic"
            " it lacked.",
            q.PHASES,
            names={"1": ("here", BLUE)},
        ),
        states(
            "Checks and verdicts",
            "Every check of the newest version: fail, unknown, pass. No data is unknown, never"
            " pass.",
            "unknown for long: too few requests; headrace rollout status says how many are"
            " missing, headrace rollout promote decides by hand.",
            q.VERDICTS,
            names=VERDICTS,
            width=24,
        ),
        lines(
            "Step",
            "Which step of the rollout goes on, from 0.",
            "The steps stand in the endpoint's spec.rollout.steps.",
            q.STEP,
            width=8,
        ),
        states(
            "Held by a person",
            "Whether somebody paused the rollout.",
            "headrace rollout resume ENDPOINT goes on; its deadline stands still until then.",
            q.PAUSED,
            names={"0": ("goes on", GREEN), "1": ("paused", YELLOW)},
            width=8,
        ),
        bars(
            "Phases entered",
            "How often versions entered each phase, in the time shown.",
            "Many RolledBack in a row: look at what changed in training.",
            q.TRANSITIONS,
            width=8,
        ),
    )


def _arms() -> PanelRow:
    return PanelRow(
        "Arms side by side",
        lines(
            "Attempts",
            "Attempts a second on each arm.",
            "Too few on the canary: verdicts take long; raise the step's weight.",
            q.ARM_REQUESTS,
            unit="reqps",
            width=8,
        ),
        lines(
            "Errors",
            "Share of attempts that ended 5xx, each arm.",
            "Compare the arms, not only the line: an outage of Triton is in both.",
            q.ARM_ERRORS,
            unit="percentunit",
            width=8,
        ),
        lines(
            "Latency, 95th percentile",
            "Of whole attempts, each arm.",
            "The check compares within length buckets, so that longer texts on one arm don't"
            " count; this line does not.",
            q.ARM_LATENCY,
            unit="s",
            width=8,
        ),
        lines(
            "Median score",
            "Median score of the predicted label, each arm.",
            "A gap is an output shift: see the check outputShift.",
            q.ARM_SCORE,
            unit="percentunit",
            width=8,
        ),
        lines(
            "Share of each label",
            "Predicted labels of each arm, as shares.",
            "A gap between arms is what the check classShare looks at.",
            q.LABEL_SHARE,
            unit="percentunit",
            top=1,
            width=8,
        ),
        lines(
            "Wrong by feedback",
            "Share of wrong answers among those with feedback, each arm.",
            "Send feedback (docs/feedback.md): it is the only measure of quality.",
            q.ARM_WRONG,
            unit="percentunit",
            width=8,
        ),
        lines(
            "Second attempts",
            "Requests a second that another version made good.",
            "These callers saw no error; the canary's failures count all the same.",
            q.SECOND_ATTEMPTS,
            unit="reqps",
            width=24,
        ),
    )


def _shadow() -> PanelRow:
    return PanelRow(
        "Shadow",
        lines(
            "Equal labels",
            "Share of texts to which shadow and stable gave the same label.",
            "Below what the check agreement asks: look at which texts differ before the version"
            " gets callers.",
            q.SHADOW_AGREEMENT,
            unit="percentunit",
            top=1,
            width=8,
        ),
        buckets(
            "Distance of answers",
            "How far the shadow's answers are from those that callers got, 0 to 1.",
            "A band away from 0: the versions differ in kind, not by rounding.",
            q.SHADOW_DISTANCE,
            width=8,
        ),
        lines(
            "Copies",
            "Copies of requests for the shadow, sent or left out and why.",
            "Left out for want of capacity: the shadow step takes longer; callers come first.",
            q.SHADOW_COPIES,
            unit="reqps",
            width=8,
        ),
        lines(
            "Vector spaces asked for",
            "Answers to callers who name a vector space; and, while one waits for its cutover, to"
            " those who name none.",
            "Who names none gets other vectors at the cutover. A space that nobody names leaves.",
            q.SPACES_NAMED,
            q.SPACES_UNNAMED,
            unit="reqps",
            width=24,
        ),
    )


def _before_row() -> PanelRow:
    return PanelRow(
        "Before the rollout",
        bars(
            "Conversions",
            "Conversions that ended in the time shown: published, version (its own fault),"
            " environment.",
            "version: the reason stands in headrace status and in MLflow's tags; environment is"
            " tried again by itself.",
            q.CONVERSIONS,
        ),
        number(
            "Load time",
            "Mean seconds to fetch, prove, load and warm up a version, in the time shown.",
            "Grows with the model; above minutes look at the package store's speed.",
            q.LOAD_SECONDS,
            unit="s",
            steps=(ColourThreshold(300, YELLOW),),
            width=12,
        ).height(8),
    )
