"""How the registry's processes sign in to MLflow. Called by their mains; reads no environment."""

from service.mlflow_login import mlflow_authorization

__all__ = ["mlflow_authorization"]
