"""Inside a worker: loads a version's code and does one task after another.

Nothing here is trusted by the process that asks: it checks every answer itself.
"""

import importlib
import sys
import traceback
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np

from preprocess.edits import shown, taken
from preprocess.hooks import State, has_part, run_preprocess
from preprocess.model_code.archive import CLASS, MODULE
from preprocess.model_code.messages import (
    LENGTH,
    MOST_DATA_BYTES,
    Answers,
    Done,
    Hello,
    Task,
    framed,
    longest_answer,
)

_MOST_CHARACTERS = 500  # of a sentence about an error
_PARTS = ("preprocess", "postprocess")
_decoder = msgspec.msgpack.Decoder(Task)


def serve(source: BinaryIO, target: BinaryIO, closed: tuple[bool, bool]) -> int:
    """Says hello and does tasks until the source ends; returns the process's exit status."""
    try:
        hook = getattr(importlib.import_module(MODULE), CLASS)()
        parts = [part for part in _PARTS if has_part(hook, part)]
        if not parts:
            raise TypeError(f"{CLASS} in {MODULE}.py has neither preprocess nor postprocess")
    except BaseException as error:  # noqa: BLE001 - whatever it is, its last words are an answer
        _write(target, Hello([], *closed, error=_sentence(error)))
        return 1
    _write(target, Hello(parts, *closed))
    while True:
        length = source.read(LENGTH.size)
        if len(length) < LENGTH.size:
            return 0
        task = _decoder.decode(source.read(LENGTH.unpack(length)[0]))
        _write(target, _run_task(hook, task))


def _run_task(hook: object, task: Task) -> Done:
    state = State(
        task.endpoint,
        task.request_id,
        None if task.pairs is None else tuple(task.pairs),
        version=task.version,
        labels=tuple(task.labels),
        texts=tuple(task.texts),
        data=msgspec.msgpack.decode(task.data, type=dict[str, Any]),
        _left=task.left,
    )
    try:
        part = _PARTS[task.answers is not None]
        if not has_part(hook, part):  # nobody knew before this process said hello
            done = Done(task.number, texts=task.texts, pairs=task.pairs)
        elif task.answers is None:
            texts, pairs = run_preprocess(hook, state)
            data = msgspec.Raw(msgspec.msgpack.encode(state.data))
            if len(data) > MOST_DATA_BYTES:
                raise ValueError(f"state.data has {len(data)} bytes, {MOST_DATA_BYTES} at most")
            done = Done(task.number, texts=texts, pairs=pairs, data=data)
        else:
            done = Done(task.number, values=_change_answers(hook, task.answers, state))
        done = msgspec.structs.replace(done, observed=state.observed)
        if len(framed(done)) > longest_answer(task):
            raise ValueError("it makes far more of the texts than came")
    except Exception as error:  # noqa: BLE001 - the version's own code may raise anything
        return Done(task.number, _sentence(error), type(error).__name__)
    return done


def _change_answers(hook: object, answers: Answers, state: State) -> bytes | None:
    values = np.frombuffer(answers.values, "<f4").reshape(-1, answers.width)
    returned = hook.postprocess(shown(answers.form, values), state)  # type: ignore[attr-defined]
    if returned is None:
        return None
    return taken(answers.form, returned, values).astype("<f4").tobytes()


def _sentence(error: BaseException) -> str:
    """What was raised, and the last line of the version's own code that it passed."""
    said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    own = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if any(frame.filename.startswith(folder) for folder in sys.path[:1])
    ]
    place = f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else ""
    return said[: _MOST_CHARACTERS - len(place)] + place


def _write(target: BinaryIO, message: Hello | Done) -> None:
    target.write(framed(message))
    target.flush()
