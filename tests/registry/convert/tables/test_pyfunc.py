"""Pyfuncs on their way to a package: with real packages, in a process that is closed off."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("skl2onnx", reason="needs the extra tables")

from fake_mlflow import FakeMlflow, serve
from pyfunc_models import ODDS, PINNED, SEGMENTS, logged, worker_of
from table_conversions import TableConversions, encoded
from table_models import people

from contracts.features import ENGINE_FEATURES
from contracts.manifest import CONFIG_PYTHON, PYFUNC, Manifest
from contracts.model import ModelRef
from contracts.tasks import Task
from registry.conversions.messages import ConversionRequest
from registry.convert import tables
from registry.convert.download import fetch, with_pickles
from registry.convert.errors import EnvironmentFaultError, VersionError
from registry.convert.tables import environment
from registry.convert.tracking import TrackingServer
from registry.loading import warmup
from registry.pyfunc.process import PyfuncLimits

pytestmark = [
    pytest.mark.real,  # installs packages from an index
    pytest.mark.timeout(3600),  # each start imports pandas and MLflow
    pytest.mark.filterwarnings("ignore"),  # MLflow's own
]
LIMITS = PyfuncLimits(call_seconds=120.0, start_seconds=600.0)


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages of all pyfuncs here."""
    folder = tmp_path_factory.mktemp("pyfunc")
    (folder / "requirements.txt").write_text("\n".join(PINNED), encoding="utf-8")
    return environment.install(folder, "", folder)


class Pyfuncs(TableConversions):
    """Of pyfuncs, whose packages are installed already."""

    def __init__(self, fake: FakeMlflow, folder: Path, site: Path) -> None:
        super().__init__(fake, folder)
        self.site = site

    def convert(self, **changes: object) -> Manifest:
        return super().convert(**{"pyfunc": LIMITS, **changes})

    def published(self, request: ConversionRequest) -> ModelRef:
        tracking = TrackingServer(self.fake.uri)
        fetched = fetch(request, tracking, Path(request.work_dir))
        version = tables.find(fetched, request)
        assert version is not None
        assert version.flavour == tables.PYFUNC
        return tables.convert_pyfunc(
            request,
            with_pickles(fetched, tracking),
            version,
            self.store,
            lambda _phase, _words: None,
            install=lambda _model, _mlflow, _work: self.site,
        )

    def answers(self, manifest: Manifest, rows: list[Any]) -> np.ndarray:
        """What the package answers to rows as callers send them."""
        folder = self.folder / f"opened-{manifest.package_id()[:8]}"
        process = worker_of(self.file(manifest, PYFUNC), manifest, folder, LIMITS)
        width = manifest.outputs[0].shape[-1]
        try:
            process.start()
            answers = process.answers(encoded(manifest, rows))
            return answers.values(manifest.labels, width)
        finally:
            process.close()


@pytest.fixture
def world(tmp_path: Path, site: Path) -> Iterator[Pyfuncs]:
    (tmp_path / "artifacts").mkdir()
    with serve(FakeMlflow(tmp_path / "artifacts")) as fake:
        yield Pyfuncs(fake, tmp_path, site)


def test_texts_are_labels_and_a_package_answers_as_mlflow_does(world: Pyfuncs) -> None:
    import mlflow.pyfunc

    logged(world.version, body=SEGMENTS)
    manifest = world.convert()
    assert manifest.task is Task.TABULAR_CLASSIFICATION
    assert manifest.labels == ("old", "rich", "young")
    assert set(manifest.files) == {PYFUNC, CONFIG_PYTHON}
    age, income, city, member = manifest.features
    assert [age.kind, income.kind, city.kind, member.kind] == [
        "integer", "number", "category", "boolean",
    ]  # fmt: skip
    assert not age.nullable  # of an integer MLflow refuses a missing value
    assert income.nullable
    assert not city.unseen
    assert sum(income.counts) == sum(city.counts) == 100
    assert manifest.profile is not None
    assert manifest.pyfunc is not None
    tried = warmup.batch(manifest, manifest.length_buckets[0], 3)[ENGINE_FEATURES]
    np.testing.assert_array_equal(tried, [manifest.pyfunc.example] * 3)
    rows = people(250, seed=5)
    expected = mlflow.pyfunc.load_model(str(world.version)).predict(rows)
    found = world.answers(manifest, rows.to_dict("records"))
    assert [manifest.labels[at] for at in found.argmax(axis=1)] == list(expected)


def test_probabilities_of_named_labels_pass_as_they_are(world: Pyfuncs) -> None:
    import mlflow.pyfunc

    logged(world.version, body=ODDS, metadata={"labels": ["no", "yes"]})
    manifest = world.convert()
    assert manifest.labels == ("no", "yes")
    rows = people(200, seed=5)
    expected = mlflow.pyfunc.load_model(str(world.version)).predict(rows)
    found = world.answers(manifest, rows.to_dict("records"))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_arrays_without_names_and_several_numbers_a_row(world: Pyfuncs) -> None:
    import mlflow.pyfunc

    table = np.random.default_rng(0).normal(size=(300, 3)).astype(np.float32)
    body = "return np.stack([model_input.sum(axis=1), model_input[:, 0] * 2], axis=1)"
    logged(world.version, body=body, frame=table)
    manifest = world.convert()
    assert [feature.name for feature in manifest.features] == ["x0", "x1", "x2"]
    assert manifest.dimension == 2
    expected = mlflow.pyfunc.load_model(str(world.version)).predict(table[:200])
    found = world.answers(manifest, table[:200].tolist())
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("return model_input['age'] - model_input['age'].mean()", "the same row alike"),
        ("os._exit(9)", "crashed: it ended with status 9"),
        ("return [len(os.listdir('/etc'))] * len(model_input)", "PermissionError"),
    ],
)
def test_what_does_not_answer_rows_is_refused_with_the_reason(
    world: Pyfuncs, body: str, reason: str
) -> None:
    logged(world.version, body=body)
    with pytest.raises(VersionError, match=reason):
        world.convert()


def test_memory_beyond_its_bound_is_refused(world: Pyfuncs) -> None:
    body = "held = np.ones(1 << 29)\nreturn model_input['age'] * 1.0"
    logged(world.version, body=body)
    with pytest.raises(VersionError, match=r"MemoryError|status|SIG"):
        world.convert(pyfunc=PyfuncLimits(megabytes=2500))


def test_a_pickled_model_is_opened_in_its_process_alone(world: Pyfuncs, tmp_path: Path) -> None:
    script = tmp_path / "pickled.py"
    script.write_text(
        "import sys, mlflow, pandas as pd\n"
        "from mlflow.models import infer_signature\n"
        "class Doubled(mlflow.pyfunc.PythonModel):\n"
        "    def predict(self, context, model_input, params=None):\n"
        "        return model_input['a'] * 2\n"
        "frame = pd.DataFrame({'a': [float(at) for at in range(30)]})\n"
        "mlflow.pyfunc.save_model(sys.argv[1], python_model=Doubled(), input_example=frame,\n"
        "    signature=infer_signature(frame, frame['a']), pip_requirements=[])\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", str(script), str(world.version)], check=True,
                   capture_output=True)  # fmt: skip
    assert (world.version / "python_model.pkl").is_file()
    manifest = world.convert()
    found = world.answers(manifest, [{"a": 3.5}, [4]])
    np.testing.assert_array_equal(found, [[7.0], [8.0]])


def test_a_pyfunc_waits_until_the_operator_allows_it(world: Pyfuncs) -> None:
    logged(world.version)
    with pytest.raises(EnvironmentFaultError, match=r"--pyfunc, or triton\.pyfunc\.enabled"):
        world.convert(pyfunc=None)


def test_a_pyfunc_without_a_signature_is_refused(world: Pyfuncs) -> None:
    logged(world.version)
    described = (world.version / "MLmodel").read_text().split("signature:")[0]
    (world.version / "MLmodel").write_text(described)
    with pytest.raises(VersionError, match="no signature"):
        world.convert()
