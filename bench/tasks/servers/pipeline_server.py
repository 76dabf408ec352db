"""``transformers`` pipelines behind FastAPI, over ONNX Runtime and the same ``model.onnx``.

The pipeline reads its model from a folder in Hugging Face's layout and runs it by ``optimum``, as
its page "Accelerated inference" shows. One worker and one thread, as in ``fastapi_server``.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio.to_thread
import onnxruntime
import transformers
from fastapi import FastAPI
from optimum.onnxruntime import (
    ORTModelForSequenceClassification,
    ORTModelForTokenClassification,
)
from pydantic import BaseModel

_FOLDER = Path(os.environ["PEERS_MODEL"])
_ROWS = int(os.environ["PEERS_ROWS"])
_RANKS = os.environ["PEERS_TASK"] == "text-ranking"


def _pipeline() -> Any:  # noqa: ANN401 - transformers' own
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    load = ORTModelForSequenceClassification if _RANKS else ORTModelForTokenClassification
    return transformers.pipeline(
        "text-classification" if _RANKS else "token-classification",
        model=load.from_pretrained(_FOLDER, file_name="model.onnx", session_options=options),
        tokenizer=transformers.AutoTokenizer.from_pretrained(_FOLDER),
    )


class Rows(BaseModel):
    """A request: texts, or pairs of ``text`` and ``text_pair``."""

    inputs: list[Any]


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    del app
    anyio.to_thread.current_default_thread_limiter().total_tokens = 1
    yield


app = FastAPI(lifespan=_lifespan)
pipeline = _pipeline()


@app.get("/ready")
async def ready() -> bool:
    """Whether it serves."""
    return True


@app.post("/predict")
def predict(rows: Rows) -> list[Any]:
    """What the pipeline answers."""
    if _RANKS:
        found = pipeline(rows.inputs, batch_size=_ROWS, function_to_apply="sigmoid")
        return [each["score"] for each in found]
    answered = pipeline(rows.inputs, batch_size=_ROWS, aggregation_strategy="simple")
    if len(rows.inputs) == 1 and not (answered and isinstance(answered[0], list)):
        answered = [answered]
    return [[_plain(each) for each in entities] for entities in answered]


def _plain(entity: dict[str, Any]) -> dict[str, Any]:
    return {**entity, "score": float(entity["score"])}
