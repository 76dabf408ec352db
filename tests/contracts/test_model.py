"""Names that routes, Triton and Kubernetes must all accept."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from contracts.model import ENDPOINT_NAME, ModelRef, endpoint_name


@given(st.text(max_size=200))
def test_every_registered_name_gives_a_valid_endpoint_name(name: str) -> None:
    assert ENDPOINT_NAME.fullmatch(endpoint_name(name))


@pytest.mark.parametrize(
    ("registered", "endpoint"),
    [
        ("sentiment-classifier", "sentiment-classifier"),
        ("Sentiment_Classifier.EN", "sentiment-classifier-en"),
        ("модель", "model"),
        ("--a--", "a"),
    ],
)
def test_endpoint_names_stay_recognisable(registered: str, endpoint: str) -> None:
    assert endpoint_name(registered) == endpoint


def test_tritons_name_tells_version_and_package() -> None:
    ref = ModelRef(model="Sentiment Classifier", version="3", package="0123456789abcdef" * 4)
    assert ref.triton_model == "sentiment-classifier-v3-0123456789ab"
    assert re.fullmatch(r"[-a-z0-9]+", ref.triton_model)


def test_a_package_is_a_digest() -> None:
    with pytest.raises(ValidationError):
        ModelRef(model="m", version="1", package="latest")
