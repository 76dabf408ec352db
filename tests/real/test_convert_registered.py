"""Versions registered by the standard MLflow client in a real server, converted by the process."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import onnx
import pytest
from own_servers import MlflowProcess
from page_snippets import ROOT, of
from registry_fakes import KEYS
from tiny_models import TEXTS, classifier, tokenizer

from contracts.manifest import Manifest
from registry.conversions.launcher import SubprocessLauncher, SubprocessOptions
from registry.conversions.messages import ConversionFailure, ConversionRequest, PublishedPackage
from registry.conversions.publication import PublishingLauncher
from registry.conversions.staging import STAGING, StagingFolders
from registry.convert import walk
from registry.convert.tracking import TrackingServer
from registry.mlflow.client import MlflowConnection
from registry.mlflow.model_registry import MlflowRegistry
from registry.packages.store import PackageStore

pytestmark = [pytest.mark.real, pytest.mark.filterwarnings("ignore")]  # MLflow's own


HERE = "tests/real/test_convert_registered.py"


@pytest.fixture
def server(mlflow_server: MlflowProcess) -> MlflowProcess:
    mlflow.set_tracking_uri(mlflow_server.url)
    return mlflow_server


def request_for(server: MlflowProcess, folder: Path, model: str) -> ConversionRequest:
    work = folder / model
    work.mkdir()
    return ConversionRequest.model_validate(
        {
            "tracking_uri": server.url,
            "model": model,
            "version": "1",
            "store_url": (folder / "store").as_uri(),
            "serving": {},
            "work_dir": str(work),
        }
    )


def convert(server: MlflowProcess, folder: Path, model: str) -> Manifest | ConversionFailure:
    """As the controller does it: in a process, into a folder of its own, and then proved."""
    request = request_for(server, folder, model)
    store = PackageStore(request.store_url)
    versions = asyncio.run(
        MlflowRegistry(MlflowConnection(server.url, timeout_seconds=30.0)).versions(model)
    )
    options = SubprocessOptions(work_dir=folder / "work", environment=dict(os.environ))
    launcher = PublishingLauncher(
        SubprocessLauncher(options),
        store,
        staging=StagingFolders(request.store_url, KEYS),
        keys=KEYS,
        registered=lambda _model, number: next(
            (each for each in versions if each.number == number), None
        ),
        work_dir=folder / "work",
    )
    result = asyncio.run(launcher.run(request, lambda _progress: None))
    if isinstance(result, PublishedPackage):
        assert not list((folder / "store" / STAGING).iterdir())
        return store.manifest(result.ref.package)
    return result


def do_as_page_says(page: str, server: MlflowProcess, model: str, folder: Path) -> None:
    """Runs the snippet with which a page registers a model, on a model of the test."""
    (snippet,) = [each for each in of(ROOT / page) if each.said == HERE]
    mlflow.end_run()
    text = snippet.text.replace("http://127.0.0.1:5000", server.url)
    assert model in text
    exec(text.replace(model, str(folder)), {})


def convert_here(server: MlflowProcess, folder: Path, model: str) -> Manifest:
    """In this process, which has imported torch already: another takes many seconds for it."""
    request, store = request_for(server, folder, model), PackageStore((folder / "store").as_uri())
    ref = walk.convert(request, TrackingServer(server.url), store, lambda _phase, _message: None)
    return store.manifest(ref.package)


def test_an_onnx_version_with_external_data_and_a_tokeniser_of_its_run(
    server: MlflowProcess, tmp_path: Path
) -> None:
    mlflow.set_experiment("onnx")
    texts = tmp_path / "held_out.jsonl"
    texts.write_text("\n".join(json.dumps({"text": text}) for text in TEXTS))
    words = tmp_path / "tokenizer.json"
    tokenizer().save(str(words))
    model = classifier(labels=3)
    table = next(tensor for tensor in model.graph.initializer if tensor.name == "table")
    # Large enough to be stored outside the graph.
    rows = np.vstack([onnx.numpy_helper.to_array(table), np.zeros((4000, 16), np.float32)])
    table.CopyFrom(onnx.numpy_helper.from_array(rows, "table"))
    with mlflow.start_run():
        mlflow.log_artifact(str(texts), "evaluation")
        mlflow.log_artifact(str(words), "tokenizer")
        mlflow.onnx.log_model(
            model, name="model", registered_model_name="apart", save_as_external_data=True,
            pip_requirements=["onnx"],
        )  # fmt: skip
    manifest = convert(server, tmp_path, "apart")
    assert isinstance(manifest, Manifest)
    assert manifest.labels == ("LABEL_0", "LABEL_1", "LABEL_2")
    assert manifest.profile is not None
    assert manifest.profile.texts == len(TEXTS)
    assert manifest.lineage.run_id


def test_a_pyfunc_waits_for_the_operators_consent(server: MlflowProcess, tmp_path: Path) -> None:
    class Echo(mlflow.pyfunc.PythonModel):
        def predict(self, context: Any, model_input: list[str], params: Any = None) -> list[str]:
            return model_input

    mlflow.set_experiment("pyfunc")
    with mlflow.start_run():
        mlflow.pyfunc.log_model(
            name="model", python_model=Echo(), registered_model_name="echo", pip_requirements=[]
        )
    failed = convert(server, tmp_path, "echo")
    assert isinstance(failed, ConversionFailure)
    assert not failed.by_version
    assert "triton.pyfunc.enabled" in failed.reason


@pytest.mark.export
def test_both_hugging_face_flavours_and_a_plain_folder(
    server: MlflowProcess, tmp_path: Path
) -> None:
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")
    reason = "needs the export environment"
    transformers = pytest.importorskip("transformers", reason=reason)
    pytest.importorskip("sentence_transformers", reason=reason)
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer(), pad_token="[PAD]", unk_token="[UNK]"
    )
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.BertConfig(
        vocab_size=len(fast), intermediate_size=16, id2label={0: "no", 1: "yes"}, **sizes
    )
    plain = tmp_path / "plain"
    transformers.BertForSequenceClassification(config).save_pretrained(plain)
    fast.save_pretrained(plain)
    encoder = tmp_path / "encoder"
    transformers.BertModel(config).save_pretrained(encoder)
    fast.save_pretrained(encoder)
    mlflow.set_experiment("torch")
    do_as_page_says("README.md", server, "path/to/your/model", plain)
    do_as_page_says("docs/migrate/tei.md", server, "BAAI/bge-small-en-v1.5", encoder)
    with mlflow.start_run() as run:
        mlflow.log_artifacts(str(plain), "folder")
        client = mlflow.MlflowClient()
        client.create_registered_model("folder")
        client.create_model_version("folder", f"runs:/{run.info.run_id}/folder", run.info.run_id)
    assert convert_here(server, tmp_path, "my-classifier").labels == ("no", "yes")
    assert convert_here(server, tmp_path, "bge-small-en-v1-5").labels == ()
    in_a_process = convert(server, tmp_path, "folder")
    assert isinstance(in_a_process, Manifest), in_a_process
    assert in_a_process.labels == ("no", "yes")
