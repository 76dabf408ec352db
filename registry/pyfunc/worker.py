"""``python -I -S -B worker.py``: opens a version's pyfunc and answers rows.

What it is to do comes first on standard input, as JSON: ``model`` is MLflow's folder of the
version, ``site`` the folder of its packages, ``sandbox`` the file by which the process closes
itself off, ``memory_bytes`` its address space, ``categories`` the known ones of each feature (null
of a number), and ``example`` a row to try before it says that it is ready, since the first may take
long: null for none. It says hello, or what went wrong, and then answers one batch after another:
float64 numbers in the order of the signature's columns. Whatever the code prints goes to standard
error. It ends when its input does.

It runs with the version's own packages and none of Headrace's, and is copied beside Triton's model:
it needs the standard library, and of the version's packages numpy, pandas and MLflow.
"""

import importlib.util
import json
import os
import site
import struct
import sys
import traceback
from pathlib import Path
from typing import Any, BinaryIO

_LENGTH = struct.Struct("<I")
_MOST_CHARACTERS = 700  # of a sentence about an error
# What MLflow's enforcement of a signature takes without a conversion of its own.
_DTYPES = {
    "double": "float64",
    "float": "float32",
    "long": "int64",
    "integer": "int32",
    "boolean": "bool",
}


class _Model:
    """An opened model, and how its rows are made."""

    def __init__(self, told: dict[str, Any]) -> None:
        import mlflow  # noqa: PLC0415 - of the version's packages, which are known only now
        import mlflow.pyfunc  # noqa: PLC0415

        self._model: Any = mlflow.pyfunc.load_model(told["model"])
        self._schema: Any = self._model.metadata.get_input_schema()
        self._categories: list[list[str] | None] = told["categories"]
        self.mlflow = str(mlflow.__version__)

    def answer(self, data: bytes, rows: int) -> tuple[bytes, bool]:
        """What the model answers to rows: the bytes, and whether they are texts."""
        import numpy as np  # noqa: PLC0415 - as above

        numbers = np.frombuffer(data, "<f8").reshape(rows, -1)
        found = self._model.predict(self._arrange(numbers))
        array = rows_of(found, rows)
        if array.dtype.kind in "fiu":
            return array.astype("<f8").tobytes(), False
        if array.shape[1] != 1:
            raise TypeError(f"it answered {array.shape[1]} columns that are no numbers")
        texts = [str(each) for each in array[:, 0].tolist()]
        return json.dumps(texts).encode(), True

    def _arrange(self, numbers: Any) -> Any:  # noqa: ANN401 - of numpy and pandas
        import numpy as np  # noqa: PLC0415
        import pandas as pd  # noqa: PLC0415

        if self._schema.is_tensor_spec():
            return numbers.astype(self._schema.inputs[0].type)
        columns: dict[str, Any] = {}
        for at, spec in enumerate(self._schema.inputs):
            values, known = numbers[:, at], self._categories[at]
            if known is not None:
                columns[spec.name] = np.array([known[int(code)] for code in values], object)
                continue
            dtype = _DTYPES[spec.type.name]
            # An integer can't be missing: MLflow says so of the float64 that it gets then.
            lacks = not dtype.startswith("float") and np.isnan(values).any()
            columns[spec.name] = values if lacks else values.astype(dtype)
        return pd.DataFrame(columns)


def rows_of(found: Any, rows: int) -> Any:  # noqa: ANN401 - whatever the model answered
    """The answers as an array ``[rows, n]``; raises ``TypeError`` for what is none."""
    import numpy as np  # noqa: PLC0415 - of the version's packages
    import pandas as pd  # noqa: PLC0415

    if isinstance(found, pd.DataFrame | pd.Series):
        found = found.to_numpy()
    array = np.asarray(found)
    if array.dtype.kind == "O":
        array = np.asarray(array.tolist())
    if array.ndim not in (1, 2) or len(array) != rows or array.size == 0:
        raise TypeError(f"it answered {array.shape} to {rows} rows, not [rows] or [rows, n]")
    if array.dtype.kind not in "fiubUT":
        raise TypeError(f"it answered values of {array.dtype}, not numbers or texts")
    return array.reshape(rows, -1)


def main() -> int:
    """The process; returns its exit status."""
    source = os.fdopen(os.dup(0), "rb")
    target = os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    first = _read(source)
    if first is None:
        return 0
    told = json.loads(first)
    closed = _close_off(told)
    site.addsitedir(told["site"])
    try:
        model = _Model(told)
        example = told["example"]
        if example is not None:
            model.answer(struct.pack(f"<{len(example)}d", *example), 1)
    except BaseException as error:  # noqa: BLE001 - whatever it is, its last words are an answer
        _write(target, {"error": _sentence(error, told)})
        return 1
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    said = {"files_closed": closed[0], "calls_refused": closed[1]}
    _write(target, {**said, "python": python, "mlflow": model.mlflow})
    while True:
        header, body = _read(source), _read(source)
        if header is None or body is None:
            return 0
        try:
            answer, texts = model.answer(body, json.loads(header)["rows"])
        except BaseException as error:  # noqa: BLE001 - the version's own code may raise anything
            memory = isinstance(error, MemoryError)
            _write(target, {"error": _sentence(error, told), "memory": memory})
        else:
            _write(target, {"texts": texts}, answer)


def _close_off(told: dict[str, Any]) -> tuple[bool, bool]:
    """Takes from this process what the code has no need of, before anything starts a thread."""
    spec = importlib.util.spec_from_file_location("sandbox", told["sandbox"])
    if spec is None or spec.loader is None:
        raise ImportError(told["sandbox"])
    sandbox: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sandbox)
    sandbox.limit(told["memory_bytes"])
    readable = [told["model"], told["site"], sys.prefix, sys.base_prefix, *sys.path]
    files, calls = sandbox.close_off([path for path in readable if path])
    return bool(files), bool(calls)


def _sentence(error: BaseException, told: dict[str, Any]) -> str:
    """What was raised, and the last line of the version's own code that it passed."""
    said = f"{type(error).__name__}: {' '.join(str(error).split())}"
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename.startswith(told["model"])]
    place = f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else ""
    return said[: _MOST_CHARACTERS - len(place)] + place


def _read(source: BinaryIO) -> bytes | None:
    length = source.read(_LENGTH.size)
    return source.read(_LENGTH.unpack(length)[0]) if len(length) == _LENGTH.size else None


def _write(target: BinaryIO, header: dict[str, Any], body: bytes | None = None) -> None:
    data = json.dumps(header).encode()
    target.write(_LENGTH.pack(len(data)) + data)
    if body is not None:
        target.write(_LENGTH.pack(len(body)) + body)
    target.flush()


if __name__ == "__main__":
    sys.exit(main())
