"""Registers the sentiment classifier in MLflow, as any data scientist would.

It uses the standard MLflow client and nothing of ours: an ``onnx`` model with ``tokenizer.json``
and ``config.json`` as its extra files, in a run that holds parameters, accuracies, the data sets
and the texts that the model was evaluated on.

    python examples/sentiment/register.py --tracking-uri http://127.0.0.1:5000
    python examples/sentiment/register.py --variant v2     # a second, different version

The tracking URI is MLFLOW_TRACKING_URI where the option is not given. It trains nothing.
"""

import argparse
import hashlib
import json
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import onnx
from mlflow.data.code_dataset_source import CodeDatasetSource
from mlflow.data.meta_dataset import MetaDataset
from mlflow.models import ModelSignature
from mlflow.types import Schema, TensorSpec

HERE = Path(__file__).parent
MODEL = HERE / "model"
EVALUATION_TEXTS = HERE / "texts" / "held_out.jsonl"
SOURCE = {
    "package": "vaderSentiment 3.3.2, source distribution on PyPI",
    "file": "additional_resources/hutto_ICWSM_2014.tar.gz",
    "citation": "Hutto & Gilbert, VADER, ICWSM 2014",
    "licence": "MIT",
}
DIGEST_CHARACTERS = 36  # the most that MLflow stores
SIGNATURE = ModelSignature(
    inputs=Schema([TensorSpec(np.dtype(np.int64), (-1, -1), name)
                   for name in ("input_ids", "attention_mask")]),
    outputs=Schema([TensorSpec(np.dtype(np.float32), (-1, 2), "logits")]),
)  # fmt: skip


def main() -> None:
    """Reads the command line, registers one version and says which."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--tracking-uri", help="MLflow's URL")
    parser.add_argument("--model-name", default="sentiment-classifier", help="registered model")
    parser.add_argument("--experiment", default="sentiment", help="MLflow experiment")
    parser.add_argument(
        "--variant",
        choices=("v1", "v2"),
        default="v1",
        help="v1: as trained; v2: the same, with confidences fitted to held-out data",
    )
    arguments = parser.parse_args()
    if arguments.tracking_uri:
        mlflow.set_tracking_uri(arguments.tracking_uri)
    mlflow.set_experiment(arguments.experiment)
    with mlflow.start_run(run_name=f"{arguments.model_name}-{arguments.variant}"):
        version = register(arguments.model_name, arguments.variant)
    print(f"Registered version {version} of {arguments.model_name} ({arguments.variant}).")


def register(name: str, variant: str) -> str:
    """Fills the active run and registers a version of ``name``; returns its number."""
    graph = onnx.load(MODEL / "model.onnx")
    if variant == "v2":
        training = json.loads((MODEL / "training.json").read_text(encoding="utf-8"))
        divide_logits(graph, float(training["temperature"]))
        mlflow.log_param("temperature", training["temperature"])
    return log_version(graph, name, variant)


def log_version(graph: Any, name: str, variant: str) -> str:  # noqa: ANN401 - onnx has no types
    """Logs a graph with its lineage into the active run and registers it; returns its number."""
    training = json.loads((MODEL / "training.json").read_text(encoding="utf-8"))
    mlflow.log_params({**training["recipe"], "variant": variant})
    mlflow.log_metrics(json.loads((MODEL / "accuracy.json").read_text(encoding="utf-8")))
    mlflow.log_input(data_set("hutto-icwsm-2014-reviews", training["archive_sha256"]), "training")
    digest = hashlib.sha256(EVALUATION_TEXTS.read_bytes()).hexdigest()
    mlflow.log_input(data_set("hutto-icwsm-2014-reviews-held-out", digest), "evaluation")
    mlflow.log_artifact(str(EVALUATION_TEXTS), "evaluation")
    logged = mlflow.onnx.log_model(
        graph,
        name="model",
        registered_model_name=name,
        signature=SIGNATURE,
        extra_files=[str(MODEL / file) for file in ("tokenizer.json", "config.json")],
        metadata={"task": "text-classification"},
        # Named here, for finding them out would run the model in a process of its own.
        pip_requirements=["onnx", "onnxruntime", "tokenizers"],
        save_as_external_data=False,
    )
    return str(logged.registered_model_version)


def data_set(name: str, digest: str) -> MetaDataset:
    """A data set as lineage: where it is from and what it digests to, without its rows."""
    return MetaDataset(CodeDatasetSource(SOURCE), name=name, digest=digest[:DIGEST_CHARACTERS])


def divide_logits(model: Any, temperature: float) -> None:  # noqa: ANN401 - onnx has no types
    """Divides the graph's only output by ``temperature``, in place.

    The labels stay as they are; the confidences come nearer to how often the model is right
    (Guo et al., On Calibration of Modern Neural Networks, ICML 2017).
    """
    graph = model.graph
    (output,) = graph.output
    raw = f"{output.name}_before_temperature"
    for node in graph.node:
        node.output[:] = [raw if each == output.name else each for each in node.output]
    graph.initializer.append(
        onnx.numpy_helper.from_array(np.array(temperature, dtype=np.float32), "temperature")
    )
    graph.node.append(onnx.helper.make_node("Div", [raw, "temperature"], [output.name]))
    onnx.checker.check_model(model)


if __name__ == "__main__":
    main()
