"""The model: MLflow keeps this file, and opens it where the version is run."""

import mlflow
import pandas as pd

DAYS = {"city": 1.0, "country": 2.0, "island": 5.0}
HEAVY_KILOGRAMS = 20.0


class Delivery(mlflow.pyfunc.PythonModel):  # type: ignore[misc]  # MLflow's has no types
    """Days that a parcel takes."""

    def predict(
        self, context: object, model_input: pd.DataFrame, params: object = None
    ) -> pd.Series:
        """A number for each row."""
        heavy = model_input["kilograms"] > HEAVY_KILOGRAMS
        days = model_input["zone"].map(DAYS) + 2.0 * heavy
        return days / (1 + model_input["express"])


mlflow.models.set_model(Delivery())
