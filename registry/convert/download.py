"""Brings a version and what belongs to it into the scratch folder, and tells what it is.

Pickles stay in MLflow unless the operator allows them, and of a run's artifacts only a tokeniser
and evaluation texts are taken: a run may hold gigabytes. It never runs anything that it downloads.
"""

import time
from dataclasses import dataclass
from pathlib import Path

from contracts.manifest import TOKENIZER
from registry.conversions.messages import ConversionRequest
from registry.convert import texts
from registry.convert.errors import EnvironmentFaultError
from registry.convert.flavours import Original, detect
from registry.convert.flavours.detect import (
    TokenizerNotFoundError,
    is_pickle,
)
from registry.convert.tracking import Run, Tracking, Version

# Someone who logs a model and then its tokeniser registers the version in between.
_STILL_ARRIVING_SECONDS = 30.0
_TOKENIZER_FOLDER = "tokenizer"


@dataclass(frozen=True)
class Downloaded:
    """A version in the scratch folder. ``run`` is None where none is recorded."""

    version: Version
    run: Run | None
    original: Original
    evaluation: texts.EvaluationTexts


def download(request: ConversionRequest, tracking: Tracking, work: Path) -> Downloaded:
    """Downloads and detects; raises ``VersionError`` or ``EnvironmentFaultError``."""
    version = tracking.version(request.model, request.version)
    folder, beside = work / "version", work / "run"
    refused = tracking.download(
        version.artifacts,
        folder,
        skip=lambda name: is_pickle(name) and not request.allow_pickle,
    )
    run = tracking.run(version.run_id) if version.run_id else None
    beside.mkdir(parents=True, exist_ok=True)
    if run is not None and run.artifacts:
        tracking.download(run.artifacts, beside, skip=lambda name: not _wanted_of_run(name))
    try:
        original = detect(
            folder,
            refused=refused,
            tokenizers=(beside / _TOKENIZER_FOLDER, beside),
            task=request.task,
            usual=None if request.stable is None else request.stable.task,
            allow_pickle=request.allow_pickle,
            allow_remote_code=request.allow_remote_code,
        )
    except TokenizerNotFoundError as error:
        if time.time() - version.created < _STILL_ARRIVING_SECONDS:
            raise EnvironmentFaultError(f"{error} (the version is new: looking again)") from error
        raise
    return Downloaded(version, run, original, texts.find((folder, beside)))


def _wanted_of_run(name: str) -> bool:
    parts = Path(name).parts
    ours = parts[0] == _TOKENIZER_FOLDER or name == TOKENIZER
    return (ours and not is_pickle(name)) or texts.is_evaluation_file(name)
