"""An endpoint's status in two objects: a summary that many follow, and a record with all of it.

Every gateway and loader watches the endpoint, so what lies there goes to all of them with every
window of a rollout. It holds what they follow and what people read, in at most ``SUMMARY_BYTES``.
The record holds the whole status as JSON, evidence and plots included; only the controller needs
it. The summary names its record by slot and digest, and the record is written first, into the slot
that no stored summary names: whatever is killed in between, the summary's own record is there.
Before a program's first record the summary names it as ``writer``: what another one was about to
name is a conflict then.

A summary never has evidence, plots or figures. Of the rest the oldest and most detailed gives way
until it fits, and a note says what was left out. Routes, packages and what else gateways and
loaders follow are never cut: a Triton that is out of service would be used if it were not named.
Pure.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Final, Literal

from pydantic import BaseModel

from contracts.endpoint import EndpointStatus, RecordRef, Rejection, Transition
from contracts.rollout import CheckResult, CommandOutcome, RolloutState, Verdict

SUMMARY_BYTES: Final = 5 << 10
# What only kept spaces and large pools have beside that, as far as there is room: with conditions,
# a status in a cluster stays under 8 kB, if names of models and loaders have at most 63 letters.
_BESIDE = {"kept", "next_packages", "next_loading", "cordoned", "loading"}
_MOST_BYTES = 6000

_SENTENCE_BYTES = 300  # of a line of history, a check, a rejection, an answer, a note
_SHORT_BYTES = 120  # of one if there is little room
_LEAST_BYTES = 32  # of one if there is next to none
_LINES, _REJECTIONS, _ANSWERS, _NOTES = 10, 20, 5, 10  # at most
_OPEN_CHECKS = 8  # shown if there is no room for all
_MORE = "…"
_LEFT_OUT = "left out here for room: "


def summary(status: EndpointStatus) -> EndpointStatus:
    """What many follow of a status; the status itself if that is small and has no evidence."""
    found = _without_figures(status)
    twice = status.model_copy(update={"kept": status.kept * 2})  # they are among packages, too
    beside = twice.model_dump_json(by_alias=True, include=_BESIDE, exclude_defaults=True)
    most = min(SUMMARY_BYTES + len(beside.strip("{}").encode()), _MOST_BYTES)
    for cut in (_bound_status, *_CUTS):
        found = cut(found)
        noted = _with_note(found, status)
        if _size(noted) <= most:
            break
    return noted


def text_of(status: EndpointStatus) -> str:
    """The record's text: the whole status."""
    return status.model_copy(update={"record": None, "writer": ""}).model_dump_json(by_alias=True)


def ref_to(text: str, before: RecordRef | None) -> RecordRef:
    """Where a text lies or is to be written: in the slot that ``before`` does not name."""
    digest = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    if before is not None and before.digest == digest:
        return before
    slot: Literal["a", "b"] = "b" if before is not None and before.slot == "a" else "a"
    return RecordRef(slot=slot, digest=digest)


def read(ref: RecordRef, text: str | None) -> EndpointStatus | None:
    """The whole status; None if ``ref`` names another text. ``ValueError``: of another release."""
    if text is None or ref_to(text, ref) != ref:
        return None
    return EndpointStatus.model_validate_json(text)


def shorten(sentence: str, most: int) -> str:
    """A sentence in at most ``most`` bytes of JSON; one that was cut says so at its end."""
    if _size_of_text(sentence) <= most:
        return sentence
    room, kept = most - _size_of_text(_MORE), 0
    for place, letter in enumerate(sentence):
        room -= _size_of_text(letter)
        if room < 0:
            break
        kept = place + 1
    return sentence[:kept] + _MORE


def _size(part: BaseModel) -> int:
    return len(part.model_dump_json(by_alias=True).encode())


def _size_of_text(text: str) -> int:
    return len(json.dumps(text, ensure_ascii=False).encode(errors="replace")) - 2


# What a summary never has


def _without_figures(status: EndpointStatus) -> EndpointStatus:
    update = {
        "record": None,
        "rollout": _strip_state(status.rollout),
        "last_rollout": _strip_state(status.last_rollout),
        "history": tuple(line.model_copy(update={"figures": {}}) for line in status.history),
    }
    return status.model_copy(update=update)


def _strip_state(state: RolloutState | None) -> RolloutState | None:
    if state is None:
        return None
    checks = tuple(check.model_copy(update={"figures": {}}) for check in state.checks)
    return state.model_copy(update={"evidence": {}, "series": (), "checks": checks})


# What gives way, the first first


def _bound_status(status: EndpointStatus) -> EndpointStatus:
    """With the newest of each kind, and no sentence longer than it need be."""
    update = {
        **_parts(status, _LINES, _REJECTIONS, _ANSWERS),
        **_sentences(status, _SENTENCE_BYTES, _NOTES),
        "rollout": _short_checks(status.rollout),
        "last_rollout": _short_checks(status.last_rollout),
    }
    return status.model_copy(update=update)


def _parts(
    status: EndpointStatus, lines: int, rejections: int, answers: int
) -> dict[str, Sequence[BaseModel]]:
    """The newest lines of history, rejections and answers to commands."""
    return {
        "history": _shorten_all(status.history[-lines:], "reason"),
        "rejected": _shorten_all(status.rejected[-rejections:], "reason"),
        "commands": _shorten_all(status.commands[-answers:], "said"),
    }


def _shorten_all(
    parts: Sequence[Transition | Rejection | CommandOutcome | CheckResult], field: str
) -> tuple[BaseModel, ...]:
    # Always to the same bytes: a line that is cut in another way would be taken for another line.
    return tuple(
        part.model_copy(update={field: shorten(getattr(part, field), _SENTENCE_BYTES)})
        for part in parts
    )


def _short_checks(state: RolloutState | None) -> RolloutState | None:
    if state is None:
        return None
    update = {
        "checks": _shorten_all(state.checks, "reason"),
        "reason": shorten(state.reason, _SENTENCE_BYTES),
    }
    return state.model_copy(update=update)


def _sentences(status: EndpointStatus, most: int, notes: int) -> dict[str, object]:
    """What is said of the endpoint itself."""
    candidate = status.candidate
    if candidate is not None:
        reason = shorten(candidate.reason, most)
        candidate = candidate.model_copy(update={"reason": reason})
    return {
        "candidate": candidate,
        "unserved": shorten(status.unserved, most),
        "unguarded": shorten(status.unguarded, most),
        "notes": tuple(
            note if note.startswith(_LEFT_OUT) else shorten(note, most)
            for note in status.notes[:notes]
        ),
        "refused": tuple(shorten(note, most) for note in status.refused[:notes]),
        "waits": tuple(
            wait.model_copy(update={"what": shorten(wait.what, most)}) for wait in status.waits
        ),
    }


def _with_checks(
    status: EndpointStatus, chosen: Callable[[Sequence[CheckResult]], Sequence[CheckResult]]
) -> EndpointStatus:
    state = status.rollout
    if state is None:
        return status
    return status.model_copy(
        update={"rollout": state.model_copy(update={"checks": tuple(chosen(state.checks))})}
    )


def _open(checks: Sequence[CheckResult]) -> Sequence[CheckResult]:
    """Those that have not passed: first what a rollout waits for, and of both failed ones first."""
    left = [check for check in checks if check.verdict is not Verdict.PASS]
    left.sort(key=lambda one: (not (one.gate and one.required), one.verdict is not Verdict.FAIL))
    return left[:_OPEN_CHECKS]


def _without_last_checks(status: EndpointStatus) -> EndpointStatus:
    last = status.last_rollout
    if last is None:
        return status
    return status.model_copy(
        update={"last_rollout": last.model_copy(update={"checks": ()})},
    )


def _with_short_ends(status: EndpointStatus, most: int) -> EndpointStatus:
    """With short reasons of both rollouts."""
    update = {
        name: state.model_copy(update={"reason": shorten(state.reason, most)})
        for name in ("rollout", "last_rollout")
        if (state := getattr(status, name)) is not None
    }
    return status.model_copy(update=update)


_CUTS: Final[tuple[Callable[[EndpointStatus], EndpointStatus], ...]] = (
    lambda status: status.model_copy(update=_parts(status, 5, 5, 3)),
    _without_last_checks,
    lambda status: status.model_copy(update=_parts(status, 3, 3, 3)),
    lambda status: _with_checks(status, _open),
    lambda status: status.model_copy(update=_sentences(status, _SHORT_BYTES, 3)),
    lambda status: _with_checks(status, lambda _: ()),
    lambda status: _with_short_ends(status, _SHORT_BYTES),
    lambda status: status.model_copy(update=_parts(status, 1, 1, 1)),
    lambda status: status.model_copy(update={"history": (), "rejected": (), "commands": ()}),
    lambda status: status.model_copy(update=_sentences(status, _LEAST_BYTES, 1)),
    lambda status: _with_short_ends(status, _LEAST_BYTES),
    lambda status: status.model_copy(
        update={"waits": tuple(wait.model_copy(update={"what": ""}) for wait in status.waits)}
    ),
)


def _with_note(found: EndpointStatus, whole: EndpointStatus) -> EndpointStatus:
    """With a sentence about what is left out, if something is."""
    left = (
        (len(whole.history) - len(found.history), "lines of history"),
        (len(whole.rejected) - len(found.rejected), "rejections"),
        (len(whole.commands) - len(found.commands), "answers to commands"),
        (len(whole.notes) - len(found.notes), "notes"),
        (_checks(whole) - _checks(found), "checks"),
    )
    named = [f"{count} {what}" for count, what in left if count > 0]
    if not named:
        return found
    said = f"{_LEFT_OUT}{', '.join(named)} (headrace status and rollout show all)"
    return found.model_copy(update={"notes": (*found.notes, said)})


def _checks(status: EndpointStatus) -> int:
    return sum(len(state.checks) for state in (status.rollout, status.last_rollout) if state)
