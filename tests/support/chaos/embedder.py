"""A second endpoint, which answers vectors: a model of a few kilobytes, registered as any is."""

import tempfile
from pathlib import Path

import mlflow
import numpy as np
from mlflow.models import ModelSignature
from mlflow.types import Schema, TensorSpec
from tiny_models import TEXTS as REPEATED
from tiny_models import WIDTH, token_vectors, tokenizer, write_json

ENDPOINT = "tiny-embedder"
TEXTS = tuple(dict.fromkeys(REPEATED))
_INPUTS = Schema(
    [TensorSpec(np.dtype(np.int64), (-1, -1), name) for name in ("input_ids", "attention_mask")]
)


def register_embedder(
    tracking_uri: str,
    *,
    seed: int = 0,
    name: str = ENDPOINT,
    tags: dict[str, str] | None = None,
    width: int = WIDTH,
) -> str:
    """Registers the model's next version, with weights of their own for each seed, and with tags.

    An endpoint is made for the model by itself.

    Returns:
        The version's number.
    """
    mlflow.set_tracking_uri(tracking_uri)
    mlflow.set_experiment(name)
    with tempfile.TemporaryDirectory() as folder, mlflow.start_run():
        beside = Path(folder)
        tokenizer().save(str(beside / "tokenizer.json"))
        config = {"max_position_embeddings": 24}
        write_json(beside / "config.json", config)
        made = mlflow.onnx.log_model(
            token_vectors(seed=seed, width=width),
            name="model",
            signature=ModelSignature(
                inputs=_INPUTS,
                outputs=Schema(
                    [TensorSpec(np.dtype(np.float32), (-1, -1, width), "last_hidden_state")]
                ),
            ),
            extra_files=[str(beside / name) for name in ("tokenizer.json", "config.json")],
            metadata={"task": "text-embedding"},
            pip_requirements=["onnx", "onnxruntime", "tokenizers"],
            save_as_external_data=False,
        )
        # Tags that come later may come too late: its rollout may have begun.
        return str(mlflow.register_model(made.model_uri, name, tags=tags).version)
