"""What helm says after an install: its commands name what is there."""

import re
import shutil
from pathlib import Path

import pytest
import yaml
from helm_chart import CHART, everything, rendered

from contracts.endpoint import ModelEndpoint
from service.cluster.leases import BEAT_NAME

WRAPPED = """
apiVersion: v1
kind: ConfigMap
metadata: {name: notes}
data:
  text: {{ include "the.notes" . | quote }}
"""


@pytest.fixture(scope="module")
def with_notes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The chart with its notes as an object: helm template leaves notes out."""
    chart = tmp_path_factory.mktemp("chart") / "headrace"
    shutil.copytree(CHART, chart)
    notes = chart / "templates" / "NOTES.txt"
    text = notes.read_text(encoding="utf-8")
    notes.unlink()
    defined = f'{{{{- define "the.notes" -}}}}\n{text}{{{{- end -}}}}'
    (chart / "templates" / "notes.yaml").write_text(f"{defined}\n{WRAPPED}")
    return chart


def notes(chart: Path, case: str, *apis: str) -> str:
    text = rendered(case, chart=chart, apis=apis)
    for manifest in yaml.load_all(text, Loader=yaml.CSafeLoader):
        if manifest and manifest["metadata"]["name"] == "notes":
            return str(manifest["data"]["text"])
    raise AssertionError("no notes")


@pytest.mark.parametrize("case", ["defaults", "own-parts"])
def test_every_command_names_a_service_and_a_port_that_are_there(
    with_notes: Path, case: str
) -> None:
    services = {
        item["metadata"]["name"]: {port["port"] for port in item["spec"]["ports"]}
        for item in everything(case)
        if item["kind"] == "Service"
    }
    forwarded = re.findall(r"port-forward service/(\S+) (?:\d+:)?(\d+)", notes(with_notes, case))
    assert len(forwarded) >= 2
    for service, port in forwarded:
        assert int(port) in services[service]


def test_they_say_what_an_uninstall_leaves_and_how_to_remove_it(with_notes: Path) -> None:
    said = notes(with_notes, "defaults")
    assert "leaves behind what you stored" in said
    assert "kubectl delete crd modelendpoints.headrace.dev endpointrecords.headrace.dev" in said
    assert "kubectl -n space delete pvc -l app.kubernetes.io/instance=demo" in said
    assert "of mlflow.embedded, kafka.embedded (remove" in said
    assert f"kubectl -n space delete lease {BEAT_NAME}" in said


def test_they_warn_of_what_is_only_for_trying(with_notes: Path) -> None:
    tried, own = notes(with_notes, "defaults"), notes(with_notes, "own-parts")
    for warning in ("Anybody who reaches the gateway", "without a password", "is one node"):
        assert warning in tried
        assert warning not in own


def test_where_no_endpoint_is_made_they_show_how(with_notes: Path) -> None:
    assert "gets an endpoint of its name by itself" in notes(with_notes, "defaults")
    own = notes(with_notes, "own-parts")
    assert "kind: ModelEndpoint" in own
    (echoed,) = re.findall(r"echo '(.+)' \| kubectl -n space apply -f -", own)
    made = yaml.safe_load(echoed)
    assert ModelEndpoint.model_validate(made).spec.model == "sentiment-classifier"
    assert "https://localhost:8080" in own
    assert 'authorization: Bearer $KEY"' in own


def test_on_openshift_they_say_how_to_leave_users_to_the_cluster(with_notes: Path) -> None:
    openshift = "security.openshift.io/v1"
    sentence = "set podSecurityContext.runAsUser"
    assert sentence in notes(with_notes, "defaults", openshift)
    assert sentence not in notes(with_notes, "defaults")
    assert sentence not in notes(with_notes, "platform", openshift)


def test_they_name_the_address_of_a_published_page(with_notes: Path) -> None:
    assert "https://ui.example.com/ui" in notes(with_notes, "platform")
    assert "after a login" not in notes(with_notes, "defaults")
