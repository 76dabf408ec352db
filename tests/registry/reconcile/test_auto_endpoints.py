"""Endpoints for models that have none."""

from hypothesis import given
from hypothesis import strategies as st
from registry_fakes import endpoint

from contracts.endpoint import EndpointSpec
from contracts.model import ENDPOINT_NAME
from registry.reconcile.auto_endpoints import missing_endpoints, name_notes, suffixed_name


def test_a_model_without_an_endpoint_gets_one_with_defaults() -> None:
    (made,) = missing_endpoints(["Sentiment_Classifier"], [endpoint()])
    assert made.name == "sentiment-classifier"
    assert made.spec.model == "Sentiment_Classifier"
    assert made.metadata.revision == ""


def test_a_served_model_gets_no_second_one() -> None:
    assert missing_endpoints(["m"], [endpoint(name="any-name")]) == ()


def test_the_model_of_an_endpoint_that_can_not_be_read_gets_no_second_one() -> None:
    assert missing_endpoints(["broken"], [], taken=frozenset({"broken"})) == ()
    assert missing_endpoints(["E"], [], taken=frozenset({suffixed_name("E")})) == ()


def test_of_two_models_with_one_name_the_one_that_is_called_so_gets_it() -> None:
    made = missing_endpoints(["My Model_v1 (EN)", "my-model-v1-en"], [])
    assert {each.name: each.spec.model for each in made} == {
        "my-model-v1-en": "my-model-v1-en",
        suffixed_name("My Model_v1 (EN)"): "My Model_v1 (EN)",
    }


def test_a_model_whose_name_is_taken_is_served_by_one_with_a_suffix_and_both_say_so() -> None:
    first = endpoint(name="e", spec=EndpointSpec(model="E"))
    (made,) = missing_endpoints(["E", "e"], [first])
    assert (made.name, made.spec.model) == (suffixed_name("e"), "e")
    notes = name_notes([first, made])
    assert notes[made.name].endswith(f"ask {made.name}")
    assert f"ask {made.name}" in notes["e"]
    assert name_notes([first]) == {}


def test_models_of_workspaces_never_want_the_name_of_another() -> None:
    models = ["a/b", "a-b", "a/b-c", "a-b/c", "a--b/模型", "a/模型"]
    made = {each.spec.model: each.name for each in missing_endpoints(models, [])}
    assert len(set(made.values())) == len(models)
    assert [made[each] for each in ("a/b", "a-b", "a/b-c", "a-b/c")] == [
        "a--b",
        "a-b",
        "a--b-c",
        "a-b--c",
    ]
    assert made["a--b/模型"].startswith("a--b--model-")
    assert made["a/模型"].startswith("a--model-")


def test_names_that_a_url_can_not_have_are_told_apart() -> None:
    made = missing_endpoints(["модель", "模型", "model"], [])
    assert {each.name: each.spec.model for each in made} == {
        "model": "model",
        suffixed_name("модель"): "модель",
        suffixed_name("模型"): "模型",
    }


@given(st.lists(st.text(min_size=1, max_size=80) | st.sampled_from(["a-b", "a_b", "A b", "é"])))
def test_every_model_gets_a_valid_name_of_its_own_whatever_the_order(models: list[str]) -> None:
    made = missing_endpoints(models, [])
    assert {each.spec.model for each in made} == set(models)
    assert len({each.name for each in made}) == len(made)
    assert all(ENDPOINT_NAME.fullmatch(each.name) for each in made)
    assert missing_endpoints(reversed(models), made) == ()
    assert missing_endpoints(reversed(models), []) == made
