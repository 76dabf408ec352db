"""The form of the models."""

from contracts.endpoint import Precision
from registry.convert.forms import Agreement, Form

FORM = Form(
    loader="AutoModelForSequenceClassification",
    exported="logits",
    architecture=("ForSequenceRegression",),
    outputs=("grade",),
    telling=frozenset({"grade"}),
    limits={
        precision: {"max_abs_difference": 0.05, "mean_abs_difference": 0.01}
        for precision in Precision
    },
    agreement=Agreement.NONE,
    has_labels=False,
)
