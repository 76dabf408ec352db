"""Commands as they wait in annotations, and leave with their answer."""

import logging

import pytest
from registry_fakes import endpoint

from contracts.endpoint import EndpointStatus, ModelEndpoint
from contracts.rollout import COMMAND_BY_PREFIX, COMMAND_PREFIX, Command, CommandOutcome, Verb
from controller.rollouts import drop_answered_commands, waiting_commands


def command(name: str, at: float = 1.0) -> Command:
    return Command(id=name, verb=Verb.PAUSE, by="ada", at=at)


def annotated(
    *commands: Command, answered: tuple[str, ...] = (), more: dict[str, str] | None = None
) -> ModelEndpoint:
    notes = {f"{COMMAND_PREFIX}{item.id}": item.model_dump_json() for item in commands}
    notes |= more or {}
    outcomes = tuple(
        CommandOutcome(id=name, verb=Verb.PAUSE, by="ada", at=2.0, accepted=True, said="paused")
        for name in answered
    )
    made = endpoint(EndpointStatus(commands=outcomes))
    metadata = made.metadata.model_copy(update={"annotations": notes})
    return made.model_copy(update={"metadata": metadata})


def test_commands_come_oldest_first() -> None:
    one = annotated(command("b", 2.0), command("a", 3.0), command("c", 1.0), more={"note": "x"})
    assert [item.id for item in waiting_commands(one.metadata.annotations)] == ["c", "b", "a"]


def test_a_commands_id_is_its_annotations() -> None:
    text = command("other").model_dump_json()
    (read,) = waiting_commands({f"{COMMAND_PREFIX}mine": text})
    assert read.id == "mine"


def test_what_was_answered_leaves_and_all_else_stays() -> None:
    one = annotated(command("a"), command("b"), answered=("a",), more={"note": "x"})
    left = drop_answered_commands(one).metadata.annotations
    assert set(left) == {f"{COMMAND_PREFIX}b", "note"}


def test_the_user_beside_a_command_is_who_wrote_it_and_leaves_with_it() -> None:
    users = {f"{COMMAND_BY_PREFIX}{name}": "anna@example.com" for name in ("a", "b", "gone")}
    one = annotated(command("a"), command("b"), answered=("a",), more=users)
    read = waiting_commands(one.metadata.annotations)
    assert {item.by for item in read} == {"anna@example.com"}
    left = drop_answered_commands(one).metadata.annotations
    assert set(left) == {f"{COMMAND_PREFIX}b", f"{COMMAND_BY_PREFIX}b"}


def test_the_controller_reads_what_the_command_line_writes() -> None:
    step = command("a").model_copy(update={"full": False, "stated": "boss"})
    (read,) = waiting_commands({f"{COMMAND_PREFIX}a": step.to_text()})
    assert read == step


def test_without_an_answer_the_endpoint_stays_as_it_is() -> None:
    one = annotated(command("a"))
    assert drop_answered_commands(one) is one


def test_what_is_no_command_leaves_with_a_word_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    one = annotated(more={f"{COMMAND_PREFIX}x": "{}"})
    assert waiting_commands(one.metadata.annotations) == ()
    with caplog.at_level(logging.WARNING):
        assert drop_answered_commands(one).metadata.annotations == {}
    assert "is no command" in caplog.text
