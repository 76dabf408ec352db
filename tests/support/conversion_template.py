"""A template of conversions' Jobs as the chart makes one, and a version to convert."""

from typing import Any

from contracts.endpoint import ServingOptions
from registry.conversions.messages import ConversionRequest

BASE: dict[str, Any] = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"labels": {"chart": "c"}},
    "spec": {
        "activeDeadlineSeconds": 9,
        "backoffLimit": 6,
        "template": {
            "metadata": {"annotations": {"theirs": "kept"}},
            "spec": {
                "nodeSelector": {"disk": "fast"},
                "automountServiceAccountToken": True,
                "containers": [
                    {
                        "name": "convert",
                        "image": "headrace-conversion:1",
                        "resources": {"limits": {"memory": "4Gi"}},
                        "volumeMounts": [{"name": "work", "mountPath": "/work"}],
                    }
                ],
                "volumes": [{"name": "work", "emptyDir": {"sizeLimit": "9Gi"}}],
            },
        },
    },
}


def request(version: str = "1") -> ConversionRequest:
    return ConversionRequest(
        tracking_uri="http://mlflow:5000",
        model="m",
        version=version,
        store_url="s3://packages",
        serving=ServingOptions(),
        work_dir="",
    )
