"""Run as a program where the package is installed: converts a model of the task, and asks it."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from served_models import asked, converted
from tiny_models import TEXTS, classifier, write_onnx_version

from contracts.tasks import Task


def write(folder: Path) -> Path:
    """A version as ``mlflow.onnx`` leaves it."""
    made = write_onnx_version(
        folder,
        classifier(labels=1, output="grade"),
        labels=("LABEL_0",),
        architecture="TinyForSequenceRegression",
    )
    (folder / "evaluation_texts.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    return made


async def main() -> None:
    """Prints what each dialect answers, as JSON."""
    model, graph = converted("grades", write, Path(sys.argv[1]))
    texts = ["the film was good", "no"]
    tensor = {"name": "TEXT", "shape": [2], "datatype": "BYTES", "data": texts}
    requests: dict[str, Any] = {
        "/endpoints/grades": {"inputs": texts},
        "/v1/models/grades:predict": {"instances": texts},
        "/v2/models/grades/infer": {"inputs": [tensor]},
    }
    answers = {
        path: await asked(model, graph, "grades", path, body) for path, body in requests.items()
    }
    told = {"tasks": list(Task), "task": model.task, "answers": answers}
    print(json.dumps(told))


asyncio.run(main())
