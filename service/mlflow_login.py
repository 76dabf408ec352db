"""How Headrace's processes sign in to MLflow.

It reads no environment by itself.
"""

import base64
from collections.abc import Mapping


def mlflow_authorization(environment: Mapping[str, str]) -> str:
    """The header's value, from the variables that MLflow's own client reads; empty without any."""
    if token := environment.get("MLFLOW_TRACKING_TOKEN"):
        return f"Bearer {token}"
    if user := environment.get("MLFLOW_TRACKING_USERNAME"):
        pair = f"{user}:{environment.get('MLFLOW_TRACKING_PASSWORD', '')}"
        return f"Basic {base64.b64encode(pair.encode()).decode()}"
    return ""
