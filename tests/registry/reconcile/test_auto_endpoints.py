"""Endpoints for models that have none."""

from registry_fakes import endpoint

from registry.reconcile.controller import missing_endpoints


def test_a_model_without_an_endpoint_gets_one_with_defaults() -> None:
    (made,) = missing_endpoints(["Sentiment_Classifier"], [endpoint()])
    assert made.name == "sentiment-classifier"
    assert made.spec.model == "Sentiment_Classifier"
    assert made.metadata.revision == ""


def test_a_served_model_gets_no_second_one() -> None:
    assert missing_endpoints(["m"], [endpoint(name="any-name")]) == ()


def test_a_taken_name_is_left_alone() -> None:
    assert missing_endpoints(["E"], [endpoint(name="e")]) == ()
    assert missing_endpoints(["broken"], [], taken=frozenset({"broken"})) == ()


def test_of_two_models_with_one_name_the_first_gets_it() -> None:
    (made,) = missing_endpoints(["a_b", "a-b"], [])
    assert made.spec.model == "a-b"
