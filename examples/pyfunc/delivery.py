"""Registers a pyfunc in the local stack's MLflow, makes an endpoint of it, and asks it.

A pyfunc is Python of your own, with packages of its own: here the rules by which a made-up shop
says how many days a parcel takes. The standard MLflow client, and nothing of Headrace's until it
asks:

    make up UP_FLAGS=--pyfunc                        # in one shell
    .venv/bin/python examples/pyfunc/delivery.py     # in another
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import httpx
import mlflow
import numpy as np
import pandas as pd
from mlflow.models import infer_signature
from rich.console import Console

NAME = "delivery"
RULES = Path(__file__).with_name("rules.py")
ZONES = ("city", "country", "island")
PARCELS: Final[list[dict[str, Any]]] = [
    {"kilograms": 0.4, "zone": "city", "express": True},
    {"kilograms": 2.5, "zone": "country", "express": False},
    {"kilograms": 31.0, "zone": "island", "express": False},
]
# What the rules import. Name versions: these are installed when the version is converted.
REQUIREMENTS = [f"{name}=={version(name)}" for name in ("mlflow-skinny", "numpy", "pandas")]
HEADRACE = str(Path(sys.executable).with_name("headrace"))
WAIT_SECONDS = 600.0
POLL_SECONDS = 1.0
console = Console(highlight=False)


def parcels(count: int = 300) -> pd.DataFrame:
    """Made-up parcels; the same ones each time."""
    random = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "kilograms": random.gamma(1.5, 3, count).round(1),
            "zone": random.choice(ZONES, count),
            "express": random.random(count) < 0.3,
        }
    )


def save(folder: Path) -> Path:
    """Writes the model as MLflow keeps it: its code, a signature, and rows to try it on."""
    rows = parcels()
    mlflow.pyfunc.save_model(
        str(folder),
        python_model=str(RULES),
        signature=infer_signature(rows, np.zeros(1)),
        input_example=rows,
        pip_requirements=REQUIREMENTS,
    )
    return folder


def shown(answer: dict[str, Any]) -> list[str]:
    """A line for each parcel."""
    return [f"{days:.1f} days" for days in answer["predictions"]]


def main() -> None:
    """Registers, waits and asks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--tracking-uri", default="http://127.0.0.1:5000", help="MLflow's URL")
    parser.add_argument("--gateway", default="http://127.0.0.1:8080", help="the gateway's URL")
    arguments = parser.parse_args()
    mlflow.set_tracking_uri(arguments.tracking_uri)
    mlflow.set_experiment("pyfunc")
    with tempfile.TemporaryDirectory() as scratch:
        with mlflow.start_run(run_name=NAME) as run:
            mlflow.log_artifacts(str(save(Path(scratch, "model"))), "model")
        client = mlflow.MlflowClient()
        if not client.search_registered_models(f"name='{NAME}'"):
            client.create_registered_model(NAME)
        client.create_model_version(NAME, f"runs:/{run.info.run_id}/model", run.info.run_id)
        file = Path(scratch, f"{NAME}.yaml")
        file.write_text(
            "apiVersion: headrace.dev/v1alpha1\nkind: ModelEndpoint\n"
            f"metadata:\n  name: {NAME}\nspec:\n  model: {NAME}\n",
            encoding="utf-8",
        )
        command("apply", "-f", str(file))
    wait()
    url = f"{arguments.gateway}/v1/models/{NAME}:predict"
    answer = httpx.post(url, json={"instances": PARCELS}).raise_for_status().json()
    for line in shown(answer):
        console.print(line)


def wait() -> None:
    """Waits until the endpoint has a version that serves."""
    began = time.monotonic()
    while not json.loads(command("status", NAME, "--json"))["endpoints"][0]["status"]["routes"]:
        if time.monotonic() - began > WAIT_SECONDS:
            raise SystemExit(f"{NAME} serves no version yet: headrace status {NAME} says why.")
        time.sleep(POLL_SECONDS)


def command(*words: str) -> str:
    """What a command of Headrace's prints; ends this program where it fails."""
    done = subprocess.run([HEADRACE, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"headrace {' '.join(words)}: {done.stderr or done.stdout}")
    return done.stdout


if __name__ == "__main__":
    main()
