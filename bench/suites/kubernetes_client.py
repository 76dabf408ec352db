"""What the official Kubernetes client would cost a gateway, beside the reader that it has.

Each round starts a process for each subject: it imports the gateway, makes what reads the API, and
says what time of the processor and what memory that took. Decision 0017 (Kubernetes' edges) rests
on these figures.
"""

import importlib.metadata
import json
import subprocess
import sys
from typing import NamedTuple

from bench.figures import Report
from bench.plan import Plan

_CLIENT = "import kubernetes\nkubernetes.client.CustomObjectsApi(kubernetes.client.ApiClient())\n"
_SUBJECTS = {
    "gateway": "",
    "gateway, one module of the client": "import kubernetes.client.api.custom_objects_api\n",
    "gateway, the client": _CLIENT,
    "gateway, the client with pods": f"{_CLIENT}kubernetes.client.CoreV1Api()\n",
}
_PROBE = """
import gateway.main
import gateway.state.pod_reader
{subject}
import json, pathlib, resource, sys
used = resource.getrusage(resource.RUSAGE_SELF)
lines = pathlib.Path("/proc/self/status").read_text().splitlines()
kilobytes = next(line.split()[1] for line in lines if line.startswith("VmRSS:"))
json.dump([used.ru_utime, int(kilobytes) / 1024, len(sys.modules)], sys.stdout)
"""


class Cost(NamedTuple):
    """Of one process: seconds of user time, MiB that are resident, modules."""

    seconds: float
    mebibytes: float
    modules: float


def run(plan: Plan) -> Report:
    """Measures and reports."""
    report = Report("kubernetes-client", "what a gateway imports, with and without the client")
    rounds: dict[str, list[Cost]] = {name: [] for name in _SUBJECTS}
    for _ in range(plan.rounds):
        for name, subject in _SUBJECTS.items():
            rounds[name].append(_started(subject))
    for name, costs in rounds.items():
        report.add(name, "s, user", [cost.seconds for cost in costs])
        report.add(name, "MiB", [cost.mebibytes for cost in costs])
        report.add(name, "modules", [cost.modules for cost in costs])
    report.add("the client on disk", "MiB", [_on_disk()], note="its own files alone, not compiled")
    return report


def _started(subject: str) -> Cost:
    command = [sys.executable, "-P", "-c", _PROBE.format(subject=subject)]
    said = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
    return Cost(*json.loads(said))


def _on_disk() -> float:
    files = importlib.metadata.files("kubernetes") or ()
    sizes = (file.size or 0 for file in files if not file.name.endswith(".pyc"))
    return sum(sizes) / 2**20
