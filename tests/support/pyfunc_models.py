"""Models that are Python of their users' own, as people log them with MLflow."""

import sys
import textwrap
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd
from table_models import people

from contracts.manifest import Manifest
from preprocess.model_code import sandbox
from registry.pyfunc import archive, worker
from registry.pyfunc.process import PyfuncLimits, PyfuncProcess

# As they are here, so that nothing else is downloaded.
PINNED = [f"{name}=={version(name)}" for name in ("mlflow-skinny", "numpy", "pandas")]

_MODEL = """
import os
import numpy as np
import pandas as pd
import mlflow

class Model(mlflow.pyfunc.PythonModel):
    def predict(self, context, model_input, params=None):
{body}

mlflow.models.set_model(Model())
"""

# A number of numbers, a category and a flag.
PRICES = """
city = model_input["city"].map({"Oslo": 1.5, "Paris": 2.0, "Rome": 0.5}).astype(float)
return model_input["income"] * city + model_input["age"] ** 2 - 7.25 * model_input["member"]
"""
# One of three texts.
SEGMENTS = """
rich = model_input["income"] > 22_000
return np.where(rich, "rich", np.where(model_input["age"] > 60, "old", "young"))
"""
# Probabilities of declared labels.
ODDS = """
odds = 1 / (1 + np.exp(-(model_input["age"] - 50) / 10))
return pd.DataFrame({"no": 1 - odds, "yes": odds})
"""
# Fails, ends and eats memory at the caller's wish, before another body.
MISCHIEF = """
import time
age = int(model_input["age"].iloc[0])
if age == 991:
    raise ValueError("991 is no age")
if age == 995:
    raise RuntimeError("Stub process 'm' is not healthy: server exiting")
if age == 992:
    time.sleep(3600)
if age == 993:
    os._exit(7)
if age == 994:
    held = [np.empty(1 << 27) for _ in range(1000)]
"""


def logged(
    folder: Path,
    *,
    body: str = PRICES,
    frame: pd.DataFrame | None = None,
    requirements: list[str] | None = None,
    outputs: Any = None,
    **how: Any,
) -> Path:
    """Writes a version as ``mlflow.pyfunc.log_model`` does, with a signature and an example."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import mlflow.pyfunc
        from mlflow.models import infer_signature

        frame = people(100) if frame is None else frame
        script = folder.with_suffix(".py")
        script.write_text(_MODEL.format(body=textwrap.indent(body, " " * 8)), encoding="utf-8")
        mlflow.pyfunc.save_model(
            str(folder),
            python_model=str(script),
            signature=infer_signature(frame, outputs),
            input_example=frame,
            pip_requirements=PINNED if requirements is None else requirements,
            **how,
        )
    return folder


def worker_of(
    package: Path, manifest: Manifest, folder: Path, limits: PyfuncLimits
) -> PyfuncProcess:
    """The process that answers for a package's archive, which is unpacked into ``folder``."""
    archive.unpack(package, folder)
    told = {
        "model": str(folder / archive.MODEL),
        "site": str(folder / archive.SITE),
        "sandbox": sandbox.__file__,
        "memory_bytes": limits.megabytes * 1_000_000,
        "categories": [feature.categories or None for feature in manifest.features],
        "example": None if manifest.pyfunc is None else manifest.pyfunc.example,
    }
    return PyfuncProcess([sys.executable, "-I", "-S", "-B", worker.__file__], told, limits)
