"""The dashboard Drift: what texts and answers look like, and how far from the reference."""

from grafana_foundation_sdk.builders.dashboard import Dashboard

from dashboards import queries as q
from dashboards.board import (
    ARM,
    ENDPOINT,
    PLACE,
    PLACE_COLUMNS,
    VERSION,
    PanelRow,
    Variable,
    dashboard,
    versions,
)
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

LAMBDA = Variable("lambda", "Memory (lambda)", q.LAMBDAS)
LABEL = Variable("label", "Predicted label", q.PREDICTED)
OWN = Variable("own", "Own statistic", q.OWN_HISTOGRAMS)
LEVELS = {"0": ("quiet", GREEN), "1": ("moved", YELLOW), "2": ("far", RED)}


def drift() -> Dashboard:
    """Drift per statistic, then the statistics themselves."""
    return dashboard(
        "headrace-drift",
        "Drift",
        "Whether the texts changed since a version was evaluated, which of their properties did,"
        " and what that did to the answers.",
        variables=(*PLACE, ENDPOINT, VERSION, ARM, LAMBDA, LABEL, OWN),
        rows=(_distance(), _texts(), _lengths(), _answers(), _own_statistics_row()),
    )


def _distance() -> PanelRow:
    return PanelRow(
        "Drift per statistic",
        number(
            "Alarms now",
            "Statistics that alarm: significant at the endpoint's false-alarm budget, further than"
            " 0.2 PSI, and calibrated.",
            "Find the statistic on the right, then its own panel below.",
            q.ALARMS_NOW,
            steps=(ColourThreshold(1, RED),),
        ),
        number(
            "Calibrated",
            "How much of a day of stable traffic has been seen, to know how statistics move"
            " without drift.",
            "Below 100 % nothing alarms yet; the graphs below are right all the same.",
            q.CALIBRATION,
            unit="percentunit",
            base=YELLOW,
            steps=(ColourThreshold(1, GREEN),),
        ),
        number(
            "Time of the week known",
            "1 while enough was seen at this time of the week to say what is usual at it. Such"
            " statistics are named week:NAME below.",
            "0 is usual in the first days, and at the first weekend.",
            q.TIME_KNOWN,
            base=YELLOW,
            steps=(ColourThreshold(1, GREEN),),
        ),
        number(
            "Reference texts",
            "Texts that a version is compared with.",
            "Below some thousands, small drift can't be told from chance: log more evaluation"
            " texts with the run.",
            q.REFERENCE_TEXTS,
            base=YELLOW,
            steps=(ColourThreshold(1000, GREEN),),
        ),
        rows(
            "What is the reference",
            "profile: evaluation texts of the run; traffic: the version's first day, for the run"
            " logged none; none: not known yet.",
            "For traffic, drift since registration can't be seen: log evaluation texts.",
            q.REFERENCES,
            {**PLACE_COLUMNS, "endpoint": "Endpoint", "version": "Version", "kind": "Reference"},
            width=8,
            height=4,
        ),
        states(
            "Level",
            "Each statistic over time: quiet; moved (significant, PSI above 0.1, of week:"
            " statistics above 0.005); far (above 0.2)."
            " Far alarms as soon as it is calibrated, and not before.",
            "Only one statistic: look at it below. Many at once: another kind of text arrived;"
            " ask who began to call.",
            q.DRIFT_LEVEL,
            names=LEVELS,
            width=24,
        ),
        lines(
            "Effect size (PSI)",
            "Population stability index against the reference, less what equal samples would show."
            " 0.1 warns, 0.2 alarms, if it is significant too.",
            "Large PSI with significance below 1 is small samples: wait.",
            q.DRIFT_PSI,
            steps=(ColourThreshold(0.1, YELLOW), ColourThreshold(0.2, RED)),
        ),
        lines(
            "Significance over its threshold",
            "Chi-square divided by the threshold at the endpoint's false-alarm budget; above 1 it"
            " is no chance.",
            "Significant with small PSI is a change too small to matter.",
            q.DRIFT_SIGNIFICANCE,
            steps=(ColourThreshold(1, RED),),
        ),
        versions(),
    )


def _texts() -> PanelRow:
    return PanelRow(
        "Vocabulary",
        lines(
            "UNK tokens a text",
            "Mean tokens of a text that the vocabulary lacks. Byte-level tokenisers never have"
            " any: read tokens a word there.",
            "A rise means another language, emoji, or broken encoding. The endpoint's list of"
            " unknown words, if it is switched on, says which.",
            q.UNK_A_TEXT,
            width=8,
        ),
        lines(
            "UNK share of tokens",
            "Unknown tokens among all tokens.",
            "Above a few percent, answers are guesses: retrain with such texts.",
            q.UNK_SHARE,
            unit="percentunit",
            width=8,
        ),
        buckets(
            "UNK share of a text",
            "How many texts have which share of unknown tokens.",
            "A second band on top is a second kind of text, not a general decay.",
            q.UNK_HEATMAP,
            unit="percentunit",
            width=8,
        ),
        lines(
            "Tokens a word",
            "Tokens divided by words: how well the vocabulary knows the words.",
            "Rising: jargon, typing errors, another language.",
            q.TOKENS_PER_WORD,
        ),
        buckets(
            "Tokens a word, each text",
            "How many texts have how many tokens a word.",
            "See the panel beside.",
            q.TOKENS_PER_WORD_HEATMAP,
        ),
    )


def _lengths() -> PanelRow:
    return PanelRow(
        "Lengths",
        lines(
            "Tokens a text",
            "Median and 95th percentile of a text's length in tokens.",
            "Longer texts cost more: watch waiting on the Endpoints dashboard.",
            q.TOKENS_P50,
            q.TOKENS_P95,
        ),
        buckets(
            "Sequence lengths",
            "How many texts have how many tokens.",
            "Set serving.lengthBuckets to where the bands are.",
            q.TOKENS_HEATMAP,
        ),
        lines(
            "Truncated",
            "Share of texts longer than the model reads; their ends are not seen.",
            "Above a few percent: split texts before sending, or raise serving.maxTokens as far as"
            " the model allows.",
            q.TRUNCATED_SHARE,
            unit="percentunit",
            steps=(ColourThreshold(0.05, YELLOW), ColourThreshold(0.2, RED)),
        ),
        lines(
            "Words a text", "Mean words of a text.", "Compare with tokens a text.", q.WORDS_A_TEXT
        ),
    )


def _answers() -> PanelRow:
    return PanelRow(
        "Answers",
        lines(
            "Share of each label",
            "Predicted labels, each as a share of its version's and arm's.",
            "A share that moves with the texts is the world; one that moves only on a canary is"
            " the version.",
            q.LABEL_SHARE,
            unit="percentunit",
            top=1,
        ),
        lines(
            "Accuracy: estimated and measured",
            "Over the last hour. Measured: from callers' feedback. Estimated, with a 95 % interval:"
            " the mean score, while at least 100 texts of feedback of the last day do not"
            " contradict scores as probabilities; if texts with feedback are like all others.",
            "Both fall: the version is out of date. No estimate, but feedback: the model is surer"
            " than right, or feedback is too rare; calibrate it, or ask for labels.",
            q.ACCURACY_ESTIMATED,
            q.ACCURACY_INTERVAL,
            q.ACCURACY_MEASURED,
            unit="percentunit",
            top=1,
        ),
        buckets(
            "Scores of label $label",
            "How many texts got the label with which score.",
            "A band that slides to the middle: the model gets unsure.",
            q.SCORE_HEATMAP,
            unit="percentunit",
            width=24,
        )
        .repeat("label")
        .repeat_direction("h"),
        buckets(
            "Length of embeddings",
            "How many embeddings have which norm. Empty for classifiers.",
            "A shift is a change of texts or of the model's pooling.",
            q.NORM_HEATMAP,
        ),
        lines(
            "Texts with feedback",
            "Texts of the last hour whose truth was told: what the measured accuracy rests on.",
            "Below some hundreds the measured accuracy is a rough one.",
            q.FEEDBACK_TEXTS,
        ),
    )


def _own_statistics_row() -> PanelRow:
    declared = " Empty if the endpoint declares none."
    return PanelRow(
        "Own statistics",
        buckets(
            "Histogram $own",
            "A histogram that the endpoint declares." + declared,
            "Its owner knows.",
            q.OWN_HEATMAP,
            width=8,
        ),
        lines(
            "Categories and counters",
            "Declared categories and counters, a second." + declared,
            "Their owner knows.",
            q.OWN_CATEGORIES,
            q.OWN_COUNTERS,
            width=8,
        ),
        lines(
            "Not as declared",
            "Observations of undeclared names, or that their declaration does not allow.",
            "headrace stats add declares a statistic; else mend the preprocessor.",
            q.OWN_UNFIT,
            q.OWN_UNDECLARED,
            width=8,
        ),
    )
