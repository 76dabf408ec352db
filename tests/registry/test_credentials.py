"""Signing in to MLflow."""

import pytest

from registry.credentials import mlflow_authorization


@pytest.mark.parametrize(
    ("environment", "header"),
    [
        ({}, ""),
        ({"MLFLOW_TRACKING_TOKEN": "t"}, "Bearer t"),
        ({"MLFLOW_TRACKING_USERNAME": "u", "MLFLOW_TRACKING_PASSWORD": "p"}, "Basic dTpw"),
    ],
)
def test_credentials_come_from_mlflows_own_variables(
    environment: dict[str, str], header: str
) -> None:
    assert mlflow_authorization(environment) == header
