"""The form of the models."""

from contracts.endpoint import Precision
from registry.convert.forms import AgreementKind, TaskForm

FORM = TaskForm(
    loader="AutoModelForSequenceClassification",
    exported="logits",
    architecture=("ForSequenceRegression",),
    outputs=("grade",),
    telling=frozenset({"grade"}),
    limits={
        precision: {"max_abs_difference": 0.05, "mean_abs_difference": 0.01}
        for precision in Precision
    },
    agreement=AgreementKind.NONE,
    has_labels=False,
)
