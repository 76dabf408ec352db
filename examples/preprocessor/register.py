"""Registers the example's sentiment classifier with code of its own around it, by plain MLflow.

python examples/preprocessor/register.py --tracking-uri http://127.0.0.1:5000
"""

import argparse
from pathlib import Path

import mlflow
import onnx

HERE = Path(__file__).parent
MODEL = HERE.parent / "sentiment" / "model"


def main() -> None:
    """Reads the command line and registers one version."""
    parser = argparse.ArgumentParser(description="Registers a model with code of its own.")
    parser.add_argument("--tracking-uri", help="MLflow's URL")
    parser.add_argument("--model-name", default="support-desk", help="registered model")
    arguments = parser.parse_args()
    if arguments.tracking_uri:
        mlflow.set_tracking_uri(arguments.tracking_uri)
    mlflow.set_experiment(arguments.model_name)
    with mlflow.start_run():
        mlflow.onnx.log_model(
            onnx.load(MODEL / "model.onnx"),
            name="model",
            registered_model_name=arguments.model_name,
            extra_files=[str(MODEL / file) for file in ("tokenizer.json", "config.json")],
            code_paths=sorted(str(path) for path in (HERE / "code").iterdir() if path.is_file()),
            metadata={"task": "text-classification"},
            # Named here, for finding them out would run the model in a process of its own.
            pip_requirements=["onnx", "onnxruntime", "tokenizers"],
            save_as_external_data=False,
        )


if __name__ == "__main__":
    main()
