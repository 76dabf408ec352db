"""The way of a pyfunc, which is Python of its users' own, from its files to a published package.

Read ``convert`` downward: install its packages, find rows, open it in a process of its own with
these packages, learn what it answers, pack. It is asked in that process and nowhere else, closed
off as it is in Triton. There is no other original to compare it with: what is held to limits is
that it answers the same rows alike, again and alone, so that batches change no answer.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contracts.endpoint import Phase
from contracts.features import ENGINE_FEATURES, Feature, FeatureKind
from contracts.manifest import PYFUNC, PyfuncSpec
from contracts.model import ModelRef
from contracts.tasks import Task
from preprocess.model_code import sandbox
from registry.conversions.messages import ConversionRequest
from registry.convert.download import FetchedVersion
from registry.convert.errors import EnvironmentFaultError, VersionError
from registry.convert.flavours.config import require_text
from registry.convert.parity.verify import broken_limit
from registry.convert.tables import environment, rows, schema
from registry.convert.tables.flavour import MOST_FEATURES, TableVersion
from registry.convert.tables.original import Floats, OriginalTableModel, Row
from registry.convert.tables.walk import (
    LIMITS,
    ProvedModel,
    check_precision,
    choose_compared_rows,
    folder_of,
    is_taken,
    package_of,
    parity_of,
    profile_of,
    signature_of,
)
from registry.packages.store import PackageStore
from registry.pyfunc import archive, worker
from registry.pyfunc.process import (
    NotClosedOffError,
    PyfuncAnswers,
    PyfuncError,
    PyfuncLimits,
    PyfuncProcess,
    label_of,
)

Report = Callable[[Phase, str], None]
Install = Callable[[Path, str, Path], Path]

_START_SECONDS = 600.0  # its files are on no disk cache yet
_CALL_SECONDS = 120.0  # of hundreds of rows
_OF_CLASSES = frozenset(task for task, limits in LIMITS.items() if "min_equal_labels" in limits)
_TRIED = 8
_MOST_LABELS = 100  # that are learnt of answers


@dataclass(frozen=True)
class _OpenPyfunc(OriginalTableModel):
    """A pyfunc that is open in its process."""

    process: PyfuncProcess
    features: tuple[Feature, ...]
    width: int

    def answers(self, rows: Sequence[Row]) -> Floats:
        """Float32 ``[rows, width]``; raises ``PyfuncError``, or ``KeyError`` for a category."""
        return self.run({ENGINE_FEATURES: _numbers(self.features, rows)})[0]

    def run(self, tensors: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        """See ``walk.AnswersRows``."""
        return [self.process.answers(tensors[ENGINE_FEATURES]).values(self.labels, self.width)]


def convert(
    request: ConversionRequest,
    fetched: FetchedVersion,
    version: TableVersion,
    store: PackageStore,
    report: Report,
    *,
    install: Install = environment.install,
) -> ModelRef:
    """Makes and publishes the package of a pyfunc.

    Raises:
        ConversionError: there will be no package, and whose fault that is.
        registry.packages.store.StoreError: the store can't be written.
    """
    check_precision(request)
    report(Phase.CONVERTING, "installing the packages that the pyfunc needs")
    site = install(version.folder, version.saved_by, Path(request.work_dir))
    own = rows.find(version, (fetched.folder, fetched.beside))
    stable = request.stable
    known = schema.schema_of(version.columns, own, () if stable is None else stable.features)
    compared = choose_compared_rows(version, own, known)
    report(Phase.CONVERTING, "opening the pyfunc in a process of its own")
    with _start(request, version, site, known.features) as process:
        try:
            original = _open_pyfunc(request, version, process, known.features, compared)
            known = schema.probe_schema(original, known, compared)
            compared = [row for row in compared if is_taken(row, known.features)]
            report(Phase.VERIFYING, f"asking it twice, and alone, about {len(compared)} rows")
            tried = rows.draw_rows(version.columns, own.rows, known.categories, _TRIED)
            made, example = _prove(original, known.features, compared, tried)
            signature = signature_of(original, own, made, stable)
            profile = profile_of(original, own, made)
        except PyfuncError as error:
            raise _blame(error) from error
    if stable is not None and (broken := stable.broken_by(signature)):
        raise VersionError(broken)
    report(Phase.PUBLISHING, "publishing the pyfunc with its packages")
    folder = folder_of(request)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        packed = {archive.MODEL: version.folder, archive.SITE: site}
        sizes = archive.pack(packed, folder / PYFUNC)
    except archive.PyfuncArchiveError as error:
        raise VersionError(str(error)) from error
    spec = PyfuncSpec(
        python=f"{sys.version_info.major}.{sys.version_info.minor}",
        example=example,
        model_bytes=sizes[archive.MODEL],
        site_bytes=sizes[archive.SITE],
    )
    made = replace(made, pyfunc=spec)
    return store.publish(folder, package_of(request, fetched, made, signature, profile))


@contextmanager
def _start(
    request: ConversionRequest, version: TableVersion, site: Path, features: Sequence[Feature]
) -> Iterator[PyfuncProcess]:
    terms = request.pyfunc or PyfuncLimits()
    limits = PyfuncLimits(
        call_seconds=_CALL_SECONDS,
        megabytes=terms.megabytes,
        closed_off=terms.closed_off,
        start_seconds=_START_SECONDS,
        first_pause_seconds=0.0,  # who asks here is patient
    )
    told = {
        "model": str(version.folder.resolve()),
        "site": str(site.resolve()),
        "sandbox": sandbox.__file__,
        "memory_bytes": limits.megabytes * 1_000_000,
        "categories": [feature.categories or None for feature in features],
        "example": None,  # none is known yet
    }
    # The code must not read this process, which holds credentials, if files are not closed off.
    sandbox.hide_from_others()
    command = [sys.executable, "-I", "-S", "-B", worker.__file__]
    process = PyfuncProcess(command, told, limits, threads=request.threads)
    try:
        process.start()
        yield process
    except NotClosedOffError as error:
        raise EnvironmentFaultError(str(error).rstrip(".")) from error
    except PyfuncError as error:
        raise _blame(error) from error
    finally:
        process.close()


def _blame(error: PyfuncError) -> Exception:
    said = str(error).rstrip(".")
    return MemoryError(said) if error.killed else VersionError(said)


def _open_pyfunc(
    request: ConversionRequest,
    version: TableVersion,
    process: PyfuncProcess,
    features: tuple[Feature, ...],
    compared: Sequence[Row],
) -> _OpenPyfunc:
    """What it is, by its answers; raises ``VersionError`` or ``PyfuncError``."""
    whole = [row for row in compared if None not in row.values()]
    if not whole:
        raise VersionError("none of its rows has a value for each feature")
    answers = process.answers(_numbers(features, whole))
    stable = request.stable
    asked = request.task or (None if stable is None else stable.task)
    labels = learnt_labels(version.labels, answers, () if stable is None else stable.labels, asked)
    task = Task.TABULAR_CLASSIFICATION if labels else Task.TABULAR_REGRESSION
    if request.task not in (None, task):
        raise VersionError(f"the endpoint asks for {request.task}, and this does {task}")
    numbers = answers.numbers
    width = len(labels) or (1 if numbers is None else numbers.shape[1])
    if width > MOST_FEATURES:
        raise VersionError(f"it answers {width} numbers a row, more than {MOST_FEATURES}")
    return _OpenPyfunc(
        estimator=None,
        task=task,
        labels=labels,
        reference=f"pyfunc, asked again by mlflow {process.hello.get('mlflow', '?')}",
        version=version,
        process=process,
        features=features,
        width=width,
    )


def learnt_labels(
    named: tuple[str, ...], answers: PyfuncAnswers, stable: Sequence[str], asked: Task | None
) -> tuple[str, ...]:
    """Its labels: those that its metadata names, else those that it answered; none of a regression.

    Single numbers are labels if its metadata or the endpoint's task say so.

    Raises:
        VersionError: they can't be learnt, or the answers do not go with those that are named.
    """
    numbers = answers.numbers
    if named:
        if numbers is not None and numbers.shape[1] not in (1, len(named)):
            raise VersionError(
                f"its metadata names {len(named)} labels, and it answers "
                f"{numbers.shape[1]} numbers a row"
            )
        return named
    if numbers is None:
        found = set(answers.texts)
    elif asked in _OF_CLASSES and numbers.shape[1] == 1:
        found = {label_of(each) for each in numbers[:, 0]}
    else:
        return ()
    require_text(list(found), "its answers")
    if len(found) > _MOST_LABELS:
        raise VersionError(
            f"it answered {len(found)} different labels, more than {_MOST_LABELS}: name them in "
            "the metadata of the model, or let it answer numbers"
        )
    if found <= set(stable):
        return tuple(stable)
    if len(found) == 1:
        raise VersionError(
            f"it answered {next(iter(found))[:40]!r} to all rows: name its labels in the metadata "
            "of the model, or log it with rows of all of them"
        )
    return tuple(sorted(found))


def _prove(
    original: _OpenPyfunc,
    features: tuple[Feature, ...],
    compared: Sequence[Row],
    tried: Sequence[Row],
) -> tuple[ProvedModel, tuple[float, ...]]:
    """Answers the same rows alike; raises ``VersionError``.

    The row that its package names, the second of what is returned, is the first of ``tried``, which
    are nobody's, that it answers.
    """
    parity, width = parity_of(original, features, original, compared)
    if broken := broken_limit(parity):
        raise VersionError(f"it does not answer the same row alike each time: {broken}")
    example = next((row for row in (*tried, *compared) if _answers(original, row)), None)
    if example is None:
        raise VersionError("it answers none of its rows alone")
    numbers = tuple(_numbers(features, [example])[0].tolist())
    return ProvedModel(None, original, features, parity, width), numbers


def _answers(original: _OpenPyfunc, row: Row) -> bool:
    if None in row.values():
        return False
    try:
        return bool(np.isfinite(original.answers([row])).all())
    except PyfuncError:
        return False


def _numbers(features: Sequence[Feature], asked: Sequence[Row]) -> NDArray[np.float64]:
    """Rows as the engine takes them; raises ``KeyError`` for a category that is not known."""
    codes = {
        feature.name: {category: code for code, category in enumerate(feature.categories)}
        for feature in features
        if feature.kind is FeatureKind.CATEGORY
    }
    made = np.full((len(asked), len(features)), np.nan)
    for at, row in enumerate(asked):
        for column, feature in enumerate(features):
            value = row[feature.name]
            if feature.name in codes:
                made[at, column] = codes[feature.name][value]
            elif value is not None:
                made[at, column] = float(value)
    return made
