"""Registers two models of tables in the local stack's MLflow, makes endpoints, and asks them.

The standard MLflow client, scikit-learn and XGBoost, and nothing of Headrace's until it asks:

    make up                                      # in one shell
    .venv/bin/python examples/tables/shop.py     # in another
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import httpx
import mlflow
import numpy as np
import pandas as pd
from mlflow.models import infer_signature
from rich.console import Console
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from xgboost import XGBRegressor

LEAVING, SPENDING = "leaving", "spending"
CITIES = ("Lisbon", "Oslo", "Rome")
CUSTOMERS: Final[list[dict[str, Any]]] = [
    {"months": 2, "orders": 1.0, "city": "Oslo", "newsletter": False},
    {"months": 40, "orders": 6.5, "city": "Rome", "newsletter": True},
    {"months": 12, "orders": None, "city": "Bern", "newsletter": False},  # two things unknown
]
HEADRACE = str(Path(sys.executable).with_name("headrace"))
WAIT_SECONDS = 300.0
POLL_SECONDS = 1.0
console = Console(highlight=False)


def customers(count: int = 1000) -> pd.DataFrame:
    """Made-up customers of a shop; the same ones each time."""
    random = np.random.default_rng(0)
    orders = random.gamma(2, 2, count).round(1)
    return pd.DataFrame(
        {
            "months": random.integers(0, 60, count),
            "orders": np.where(random.random(count) < 0.05, np.nan, orders),
            "city": random.choice(CITIES, count),
            "newsletter": random.random(count) < 0.5,
        }
    )


def leaving(table: pd.DataFrame) -> Pipeline:
    """Who leaves: a pipeline of scikit-learn, which fills in orders and ignores other cities."""
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    columns = ColumnTransformer(
        [
            ("numbers", numbers, ["months", "orders"]),
            ("city", OneHotEncoder(handle_unknown="ignore"), ["city"]),
            ("rest", "passthrough", ["newsletter"]),
        ]
    )
    score = table["months"] + 8 * table["orders"].fillna(4) + 10 * table["newsletter"]
    score += np.random.default_rng(1).normal(0, 15, len(table))
    model = make_pipeline(columns, LogisticRegression(max_iter=1000))
    return model.fit(table, np.where(score < 50, "leaves", "stays"))


def spending(table: pd.DataFrame) -> XGBRegressor:
    """What a customer spends: trees of XGBoost, which know a way for missing orders."""
    spent = 20 * table["orders"].fillna(2) + table["months"]
    return XGBRegressor(n_estimators=40, max_depth=3).fit(table[["months", "orders"]], spent)


def save(name: str, folder: Path) -> Path:
    """Writes a model as MLflow keeps it: with a signature, and rows to prove it on."""
    table = customers()
    if name == LEAVING:
        model = leaving(table)
        more = {"skops_trusted_types": ["numpy.dtype"]}
        write = mlflow.sklearn.save_model
    else:
        table = table[["months", "orders"]]
        model, more, write = spending(customers()), {}, mlflow.xgboost.save_model
    signature = infer_signature(table, model.predict(table))
    write(model, str(folder), signature=signature, input_example=table, pip_requirements=[], **more)
    return folder


def request(name: str) -> dict[str, Any]:
    """The body of a request for all customers."""
    if name == LEAVING:
        return {"instances": CUSTOMERS}
    return {"instances": [[each["months"], each["orders"]] for each in CUSTOMERS]}


def shown(name: str, answer: dict[str, Any]) -> list[str]:
    """A line for each customer."""
    if name == LEAVING:
        return [f"{each['score']:.2f}  {each['label']}" for each in answer["predictions"]]
    return [f"{value:.0f}" for value in answer["predictions"]]


def main() -> None:
    """Registers, waits and asks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--tracking-uri", default="http://127.0.0.1:5000", help="MLflow's URL")
    parser.add_argument("--gateway", default="http://127.0.0.1:8080", help="the gateway's URL")
    arguments = parser.parse_args()
    mlflow.set_tracking_uri(arguments.tracking_uri)
    mlflow.set_experiment("tables")
    with tempfile.TemporaryDirectory() as scratch:
        for name in (LEAVING, SPENDING):
            with mlflow.start_run(run_name=name) as run:
                mlflow.log_artifacts(str(save(name, Path(scratch, name))), "model")
            client = mlflow.MlflowClient()
            if not client.search_registered_models(f"name='{name}'"):
                client.create_registered_model(name)
            client.create_model_version(name, f"runs:/{run.info.run_id}/model", run.info.run_id)
            file = Path(scratch, f"{name}.yaml")
            file.write_text(
                "apiVersion: headrace.dev/v1alpha1\nkind: ModelEndpoint\n"
                f"metadata:\n  name: {name}\nspec:\n  model: {name}\n",
                encoding="utf-8",
            )
            command("apply", "-f", str(file))
    for name in (LEAVING, SPENDING):
        wait_for(name)
        url = f"{arguments.gateway}/v1/models/{name}:predict"
        answer = httpx.post(url, json=request(name)).raise_for_status().json()
        console.print(f"[bold]{name}[/bold]")
        for line in shown(name, answer):
            console.print(f"   {line}")


def wait_for(name: str) -> None:
    """Waits until an endpoint has a version that serves."""
    began = time.monotonic()
    while not json.loads(command("status", name, "--json"))["endpoints"][0]["status"]["routes"]:
        if time.monotonic() - began > WAIT_SECONDS:
            raise SystemExit(f"{name} serves no version yet: headrace status {name} says why.")
        time.sleep(POLL_SECONDS)


def command(*words: str) -> str:
    """What a command of Headrace's prints; ends this program where it fails."""
    done = subprocess.run([HEADRACE, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"headrace {' '.join(words)}: {done.stderr or done.stdout}")
    return done.stdout


if __name__ == "__main__":
    main()
