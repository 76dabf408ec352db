"""What ``headrace migrate`` prints, as a user runs it."""

import json
from pathlib import Path

from typer.testing import CliRunner

from headrace.cli import app
from headrace.endpoints import document

SERVICE = """\
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: tone}
spec: {predictor: {minReplicas: 1, model: {modelFormat: {name: onnx}, storageUri: "s3://m/tone"}}}
"""


def test_the_document_goes_to_standard_output_and_the_rest_beside_it(tmp_path: Path) -> None:
    file = tmp_path / "isvc.yaml"
    file.write_text(SERVICE)
    done = CliRunner().invoke(app, ["migrate", "kserve", "-f", str(file), "--model", "tones"])
    assert done.exit_code == 0
    (endpoint,) = document.read(done.stdout, "-")
    assert (endpoint.name, endpoint.spec.model) == ("tone", "tones")
    assert "Register s3://m/tone in MLflow as a version of tones." in done.stderr
    assert "  spec.predictor.minReplicas: pods are shared" in done.stderr


def test_scripts_get_what_was_left_out_with_the_document(tmp_path: Path) -> None:
    file = tmp_path / "isvc.yaml"
    file.write_text(SERVICE)
    done = CliRunner().invoke(app, ["migrate", "kserve", "-f", str(file), "-o", "json"])
    (told,) = json.loads(done.stdout)
    assert told["endpoint"]["metadata"] == {"name": "tone"}
    assert told["register"] == "s3://m/tone"
    assert [each["where"] for each in told["left_out"]] == ["spec.predictor.minReplicas"]
    assert done.stderr == ""


def test_a_manifest_comes_through_a_pipe() -> None:
    done = CliRunner().invoke(app, ["migrate", "kserve", "-f", "-"], input=SERVICE)
    assert done.exit_code == 0
    assert [each.name for each in document.read(done.stdout, "-")] == ["tone"]


def test_what_can_not_be_translated_is_refused_in_a_sentence(tmp_path: Path) -> None:
    runner = CliRunner()
    unknown = runner.invoke(app, ["migrate", "kserve", "-f", "-", "--task", "painting"], input="")
    assert "There is no task painting." in unknown.stderr
    missing = runner.invoke(app, ["migrate", "kserve", "-f", str(tmp_path / "none")])
    assert missing.exit_code == 10
