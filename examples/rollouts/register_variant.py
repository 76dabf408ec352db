"""Registers a variant of the sentiment classifier in MLflow, with the standard client alone.

    python examples/rollouts/register_variant.py better --tracking-uri http://127.0.0.1:5000

The tracking URI is MLFLOW_TRACKING_URI where the option is not given. ``variants.py`` says what
each variant is.
"""

import argparse
import sys
from pathlib import Path

import mlflow

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "sentiment"))
from register import log_version  # the sentiment example's, in the folder beside this one
from variants import VARIANTS, make


def main() -> None:
    """Reads the command line, registers one version and says which."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("variant", choices=tuple(VARIANTS))
    parser.add_argument("--tracking-uri", help="MLflow's URL")
    parser.add_argument("--model-name", default="sentiment-rollouts", help="registered model")
    parser.add_argument("--experiment", default="sentiment-rollouts", help="MLflow experiment")
    arguments = parser.parse_args()
    if arguments.tracking_uri:
        mlflow.set_tracking_uri(arguments.tracking_uri)
    mlflow.set_experiment(arguments.experiment)
    with mlflow.start_run(run_name=arguments.variant):
        version = log_version(make(arguments.variant), arguments.model_name, arguments.variant)
    print(f"Registered version {version} of {arguments.model_name} ({arguments.variant}).")


if __name__ == "__main__":
    main()
