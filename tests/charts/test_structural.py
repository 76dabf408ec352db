"""pydantic's schemas become structural ones, or the translator says why they can't."""

from typing import Any, Literal

import kubernetes_validate
import pytest
from chart_definition import crd
from pydantic import BaseModel, Field


class Cat(BaseModel):
    lives: int = 9


class Dog(BaseModel):
    name: str


class Pets(BaseModel):
    one: Cat | Dog
    perhaps: Cat | None = None
    unless_null: Cat | None = Cat()
    by_name: dict[str, float] = {}
    anything: dict[str, Any] = {}
    share: float = Field(0.5, gt=0, lt=1)
    word: Literal["only"] = "only"
    either: Literal["auto"] | tuple[int, ...] = "auto"


def structural(kind: type[BaseModel]) -> dict[str, Any]:
    schema = kind.model_json_schema()
    made: dict[str, Any] = crd.Structural(schema.pop("$defs", {})).of(schema)
    return made


def test_everything_translated_is_in_words_that_kubernetes_has() -> None:
    made = crd.definition()
    made["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = structural(Pets)
    kubernetes_validate.validate(made, "1.34", strict=True)


def test_alternatives_become_one_object_without_their_defaults() -> None:
    one = structural(Pets)["properties"]["one"]
    assert one["properties"] == {"lives": {"type": "integer"}, "name": {"type": "string"}}
    assert "required" not in one


def test_null_is_said_only_where_it_differs_from_leaving_the_field_out() -> None:
    pets = structural(Pets)["properties"]
    assert pets["perhaps"] == {
        "type": "object",
        "properties": {"lives": {"type": "integer", "default": 9}},
    }
    assert pets["unless_null"]["nullable"] is True
    assert pets["unless_null"]["default"] == {"lives": 9}


def test_bounds_that_are_not_reached_are_said_in_openapi_3() -> None:
    share = structural(Pets)["properties"]["share"]
    assert (share["minimum"], share["exclusiveMinimum"]) == (0, True)
    assert (share["maximum"], share["exclusiveMaximum"]) == (1, True)


def test_alternatives_that_share_a_field_are_refused() -> None:
    class Other(BaseModel):
        lives: int

    class Both(BaseModel):
        pet: Cat | Other

    with pytest.raises(crd.UnstructuralError, match="lives"):
        structural(Both)


def test_an_object_or_a_word_is_refused() -> None:
    class Mixed(BaseModel):
        pet: Cat | str

    with pytest.raises(crd.UnstructuralError, match="another type"):
        structural(Mixed)
