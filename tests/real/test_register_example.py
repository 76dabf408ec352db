"""The example's script against a real MLflow store, in SQLite."""

import subprocess
import sys
from pathlib import Path

import mlflow
import numpy as np
import onnxruntime
import pytest

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.real, pytest.mark.filterwarnings("ignore")]  # MLflow's own


def register(uri: str, folder: Path, *arguments: str) -> str:
    script = ROOT / "examples" / "sentiment" / "register.py"
    done = subprocess.run(
        [sys.executable, "-P", script, "--tracking-uri", uri, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return done.stdout


def test_two_variants_become_two_versions_with_their_lineage(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    assert "version 1 of sentiment-classifier" in register(uri, tmp_path)
    assert "version 2" in register(uri, tmp_path, "--variant", "v2")

    client = mlflow.MlflowClient(tracking_uri=uri)
    ids = np.array([[2, 100, 200, 3]], dtype=np.int64)
    feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
    answers = []
    for number in ("1", "2"):
        version = client.get_model_version("sentiment-classifier", number)
        run = client.get_run(version.run_id)
        contexts = {tag.value for each in run.inputs.dataset_inputs for tag in each.tags}
        assert contexts == {"training", "evaluation"}
        assert 0.5 < run.data.metrics["movie-reviews"] < 1
        mlflow.set_tracking_uri(uri)
        folder = Path(mlflow.artifacts.download_artifacts(
            f"models:/sentiment-classifier/{number}", dst_path=str(tmp_path / number)
        ))  # fmt: skip
        assert (folder / "extra_files" / "tokenizer.json").is_file()
        assert (folder / "extra_files" / "config.json").is_file()
        session = onnxruntime.InferenceSession(folder / "model.onnx")
        answers.append(session.run(["logits"], feeds)[0])
    temperature = float(run.data.params["temperature"])
    np.testing.assert_allclose(answers[1] * temperature, answers[0], rtol=1e-4)
    assert not np.allclose(answers[0], answers[1], atol=1e-3)
