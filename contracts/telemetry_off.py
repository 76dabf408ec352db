"""Variables that keep the libraries from telling their makers who runs them.

ONNX Runtime sends events by threads of its own, keeps a queue of them and a device id in the home
folder, and reads its variable when it is loaded; MLflow and Hugging Face's libraries send what is
called. This is the only list: each process of ours has them from ``contracts/__init__.py``, images
and the chart repeat them for what isn't ours, and tests hold those to it. docs/security.md says
what each library would do.
"""

from collections.abc import Mapping

VARIABLES: Mapping[str, str] = {
    "DO_NOT_TRACK": "1",  # read by MLflow, Hugging Face's libraries and others
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "ORT_DISABLE_TELEMETRY": "1",
}
