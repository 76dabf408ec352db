"""Brings a version and what belongs to it into the scratch folder, and tells what it is.

Pickles stay in MLflow unless the operator allows them, and of a run's artifacts only a tokeniser
and evaluation texts are taken: a run may hold gigabytes. It never runs anything that it downloads.
"""

import time
from dataclasses import dataclass, replace
from pathlib import Path

from contracts.manifest import TOKENIZER, Lineage
from preprocess.model_code import archive
from registry.conversions.messages import ConversionRequest
from registry.convert import texts
from registry.convert.errors import EnvironmentFaultError, SourceGoneError, VersionError
from registry.convert.flavours import OriginalTextModel, detect
from registry.convert.flavours.detect import (
    TokenizerNotFoundError,
    is_pickle,
)
from registry.convert.tracking import SourceRun, SourceVersion, TrackingServer

# Someone who logs a model and then its tokeniser registers the version in between.
_STILL_ARRIVING_SECONDS = 30.0
_TOKENIZER_FOLDER = "tokenizer"


@dataclass(frozen=True)
class FetchedVersion:
    """A version in the scratch folder.

    Attributes:
        version: as MLflow has it.
        run: None if none is recorded.
        folder: with the version's files.
        beside: with files of its run.
        refused: paths of pickles that were left where they are.
    """

    version: SourceVersion
    run: SourceRun | None
    folder: Path
    beside: Path
    refused: tuple[str, ...]


@dataclass(frozen=True)
class DownloadedVersion:
    """A version of which is known what it is. ``run`` is None if none is recorded.

    ``code`` is what it brings for gateways, packed; None if it brings none.
    """

    version: SourceVersion
    run: SourceRun | None
    original: OriginalTextModel
    evaluation: texts.EvaluationTexts
    code: bytes | None = None


def fetch(request: ConversionRequest, tracking: TrackingServer, work: Path) -> FetchedVersion:
    """Downloads a version and what belongs to it.

    Raises:
        EnvironmentFaultError: MLflow does not know it, or can't hand it out.
        VersionError: its files can't be those of a version.
    """
    version = tracking.version(request.model, request.version)
    folder, beside = work / "version", work / "run"
    refused = tracking.download(
        version.artifacts,
        folder,
        skip=lambda name: is_pickle(name) and not request.allow_pickle,
    )
    if not refused and not any(folder.iterdir()):
        raise SourceGoneError(f"MLflow lists no files of the version at {version.artifacts}")
    run = tracking.run(version.run_id) if version.run_id else None
    beside.mkdir(parents=True, exist_ok=True)
    if run is not None and run.artifacts:
        tracking.download(run.artifacts, beside, skip=lambda name: not _is_wanted_of_run(name))
    return FetchedVersion(version, run, folder, beside, refused)


def with_pickles(fetched: FetchedVersion, tracking: TrackingServer) -> FetchedVersion:
    """The version with its pickles too, for what opens them in a process that is closed off.

    Raises:
        VersionError, EnvironmentFaultError: MLflow can't hand them out.
    """
    if not fetched.refused:
        return fetched
    tracking.download(
        fetched.version.artifacts, fetched.folder, skip=lambda name: name not in fetched.refused
    )
    return replace(fetched, refused=())


def recognise(fetched: FetchedVersion, request: ConversionRequest) -> DownloadedVersion:
    """What a version of texts is; raises ``VersionError`` or ``EnvironmentFaultError``."""
    version, folder, beside = fetched.version, fetched.folder, fetched.beside
    try:
        original = detect(
            folder,
            refused=fetched.refused,
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
    except (TypeError, ValueError, AttributeError, RecursionError) as error:
        raise VersionError(f"its files hold what can't be read: {error!r:.200}") from error
    code = _code(folder, fetched.refused, allowed=request.model_code)
    return DownloadedVersion(version, fetched.run, original, texts.find((folder, beside)), code)


def _code(folder: Path, refused: tuple[str, ...], *, allowed: bool) -> bytes | None:
    """The code that the version brings for gateways, packed.

    Raises:
        EnvironmentFaultError: the operator does not allow it, and may yet.
        VersionError: code that can't be packed.
    """
    if not archive.brings_code(folder):
        return None
    name = f"{archive.FOLDER}/{archive.MODULE}.py"
    if not allowed:
        raise EnvironmentFaultError(
            f"it brings code that gateways are to run ({name}), which the operator does not allow: "
            "--model-code, or gateway.modelCode.enabled in the chart, does"
        )
    lacking = [file for file in refused if Path(file).parts[0] == archive.FOLDER]
    if lacking:
        raise VersionError(f"its code has pickles, which are refused: {', '.join(lacking[:3])}")
    try:
        return archive.pack(folder / archive.FOLDER)
    except archive.ArchiveError as error:
        raise VersionError(str(error)) from error


def _is_wanted_of_run(name: str) -> bool:
    parts = Path(name).parts
    ours = parts[0] == _TOKENIZER_FOLDER or name == TOKENIZER
    return (ours and not is_pickle(name)) or texts.is_evaluation_file(name)


def lineage(request: ConversionRequest, version: SourceVersion, run: SourceRun | None) -> Lineage:
    """Where a version came from."""
    tags = {} if run is None else run.tags
    return Lineage(
        registered_model=request.model,
        version=request.version,
        run_id=version.run_id,
        source=version.source,
        git_commit=tags.get("mlflow.source.git.commit", ""),
        data_sets=() if run is None else run.data_sets,
    )
