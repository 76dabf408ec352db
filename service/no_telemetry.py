"""Environment variables that keep libraries from reporting to their makers: one table for all.

Whoever starts a process gives it these, and a process that imports such a library sets them before.
``docs/security.md`` lists what each library would send.
"""

from typing import Final

NO_TELEMETRY: Final = {
    # ONNX Runtime 1.31: a device id and events in a file of the home folder, sent to its maker.
    "ORT_DISABLE_TELEMETRY": "1",
    # MLflow 3: which functions of its client and server are used.
    "MLFLOW_DISABLE_TELEMETRY": "true",
    # Hugging Face's libraries: what loads what; the hub is not asked by ours in any case.
    "HF_HUB_DISABLE_TELEMETRY": "1",
    # A convention that further libraries keep.
    "DO_NOT_TRACK": "1",
}
