"""Runs a packed package on texts in this process, by the very file that Triton will run.

The only module that knows that file. Rows follow one another as the gateway sends them: texts of
any lengths in one batch, without padding.
"""

import importlib.util
import logging
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from contracts.tasks import INPUT_IDS, ROW_STARTS, TOKEN_TYPE_IDS
from registry.convert.errors import EnvironmentFaultError, VersionError, find_machine_fault
from registry.convert.parity.engine import TokenisedTexts
from registry.packages.device_proof import packed_batch
from registry.packages.triton_files import triton_file

log = logging.getLogger(__name__)

Floats = NDArray[np.float32]

CPU = "cpu"
_FILE = "packed_engine"
_TOKENS_A_BATCH = 2048


class PackedRunner(Protocol):
    """A model that runs rows without padding."""

    def run(
        self,
        ids: NDArray[np.int32],
        starts: NDArray[np.int32],
        types: NDArray[np.uint8] | None = None,
    ) -> Floats:
        """The answers, float32 ``[n, width]``, or ``[T, width]`` of tasks with one a token."""


class PackedTextEngine:
    """A packed package, loaded.

    Args:
        runner: runs rows.
        by_token: whether there is an answer for each token.
        type_ids: whether the model takes ``token_type_ids``.
    """

    def __init__(self, runner: PackedRunner, *, by_token: bool, type_ids: bool) -> None:
        self._runner = runner
        self._by_token = by_token
        self._type_ids = type_ids

    def rows(self, texts: TokenisedTexts, indexes: Sequence[int], length: int) -> list[Floats]:
        """See ``TextEngine``; nothing is padded to ``length``.

        Raises:
            VersionError: the model fails on them.
            EnvironmentFaultError: memory or the GPU does not allow it now.
        """
        del length
        ids = [texts.encoded.ids[index] for index in indexes]
        output = self._run(packed_batch(ids, self._types(texts, indexes)))
        ends = np.cumsum([len(row) for row in ids]) if self._by_token else range(1, len(ids) + 1)
        return np.split(output, list(ends)[:-1])

    def outputs(self, texts: TokenisedTexts) -> Floats:
        """See ``TextEngine``: each text in company of texts of other lengths."""
        found: list[Floats] = []
        batch: list[int] = []
        tokens = 0
        for index, count in enumerate(texts.encoded.tokens):
            if batch and tokens + count > _TOKENS_A_BATCH:
                found += self.rows(texts, batch, 0)
                batch, tokens = [], 0
            batch.append(index)
            tokens += count
        return np.concatenate([*found, *self.rows(texts, batch, 0)])

    def _types(self, texts: TokenisedTexts, indexes: Sequence[int]) -> list[Sequence[int]] | None:
        if not self._type_ids:
            return None
        types = texts.encoded.type_ids
        if types is None:
            return [[0] * texts.encoded.tokens[index] for index in indexes]
        return [types[index] for index in indexes]

    def _run(self, batch: Mapping[str, NDArray[Any]]) -> Floats:
        try:
            return self._runner.run(batch[INPUT_IDS], batch[ROW_STARTS], batch.get(TOKEN_TYPE_IDS))
        except Exception as error:  # torch raises many kinds
            _tell_of_machine(error)
            size = len(batch[INPUT_IDS])
            raise VersionError(f"the packed engine fails on {size} tokens: {error}") from error


def unsuitable(config: Mapping[str, Any], loader: str) -> str:
    """Why the packed engine can't run a model, in words; empty if it can."""
    return str(_module().suits(config, loader))


def load(folder: Path, settings: Mapping[str, object], device: str) -> PackedTextEngine:
    """The engine on a package's files.

    Args:
        folder: of the files.
        settings: ``registry.packages.triton_config.packed_settings``.
        device: ``cpu``, or ``cuda:`` and a number.

    Raises:
        VersionError: they can't be run like this.
        EnvironmentFaultError: memory or the GPU does not allow it now.
    """
    try:
        runner = _module().PackedEngine(folder, settings, device)
        runner.check()
    except Exception as error:  # transformers and torch raise many kinds
        _tell_of_machine(error)
        raise VersionError(f"the packed engine can't run it: {error}") from error
    return PackedTextEngine(
        runner, by_token=settings["rank"] == 3, type_ids=bool(settings["type_ids"])
    )


def device_here(*, gpu: bool) -> tuple[str, str]:
    """What to prove on in this process: its name for torch, and the GPU's own; the CPU has none."""
    import torch  # noqa: PLC0415

    if not gpu or not torch.cuda.is_available():
        return CPU, ""
    return "cuda:0", str(torch.cuda.get_device_name(0))


def _module() -> Any:  # noqa: ANN401 - a file that Triton runs, of no package
    if _FILE not in sys.modules:
        path = triton_file("packed_model", f"{_FILE}.py")
        spec = importlib.util.spec_from_file_location(_FILE, path)
        if spec is None or spec.loader is None:
            raise FileNotFoundError(f"{path} can't be imported")
        module = sys.modules[_FILE] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[_FILE]


def _tell_of_machine(error: Exception) -> None:
    """Raises ``EnvironmentFaultError`` if it was memory or a GPU; others may use both."""
    if find_machine_fault(error) is not None:
        raise EnvironmentFaultError(f"the proof can't run on this machine: {error}") from error
