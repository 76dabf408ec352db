"""A conversion's Job is the chart's template, a name, a request, and what must not be missing."""

import json
from typing import Any

import pytest
from conversion_template import BASE, request

from registry.conversions import job_manifest
from registry.conversions.job_manifest import BadTemplateError
from registry.conversions.messages import ConversionRequest
from service.cluster.leases import Owner


def made(base: dict[str, Any] = BASE) -> dict[str, Any]:
    owner = Owner("controller-1", "uid-1")
    return job_manifest.job(base, request(), owner=owner, timeout_seconds=90)


def test_it_has_no_token_no_second_try_and_a_longest_time() -> None:
    job = made()
    pod = job["spec"]["template"]["spec"]
    assert job["spec"]["backoffLimit"] == 0
    assert job["spec"]["ttlSecondsAfterFinished"] > 0
    assert "activeDeadlineSeconds" not in job["spec"]
    assert pod["activeDeadlineSeconds"] == 90
    assert pod["automountServiceAccountToken"] is False
    assert pod["restartPolicy"] == "Never"


def test_what_the_chart_says_of_the_pod_stays() -> None:
    job = made()
    pod = job["spec"]["template"]
    assert pod["spec"]["nodeSelector"] == {"disk": "fast"}
    assert pod["metadata"]["annotations"]["theirs"] == "kept"
    assert job["metadata"]["labels"]["chart"] == "c"
    assert BASE["spec"]["backoffLimit"] == 6


def test_the_request_lies_in_the_pod_as_the_file_that_conversion_is_told_of() -> None:
    pod = made()["spec"]["template"]
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    container = pod["spec"]["containers"][0]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    (item,) = volumes["conversion-request"]["downwardAPI"]["items"]
    assert container["args"][0] == f"{mounts['conversion-request']}/{item['path']}"
    assert item["fieldRef"]["fieldPath"] == f"metadata.annotations['{job_manifest.REQUEST}']"
    text = pod["metadata"]["annotations"][job_manifest.REQUEST]
    assert ConversionRequest.model_validate_json(text).work_dir == mounts["work"] == "/work"


def test_the_result_comes_in_the_termination_message_and_never_from_the_log() -> None:
    container = made()["spec"]["template"]["spec"]["containers"][0]
    assert container["args"][1] == container["terminationMessagePath"]
    assert container["terminationMessagePolicy"] == "File"


def test_a_template_without_a_scratch_folder_gets_one() -> None:
    base = json.loads(json.dumps(BASE))
    del base["spec"]["template"]["spec"]["volumes"]
    del base["spec"]["template"]["spec"]["containers"][0]["volumeMounts"]
    pod = made(base)["spec"]["template"]["spec"]
    assert {"name": "conversion-work", "emptyDir": {}} in pod["volumes"]


def test_the_same_conversion_has_the_same_name_and_another_has_another() -> None:
    name = job_manifest.name_of(request())
    assert name == job_manifest.name_of(request()) == made()["metadata"]["name"]
    assert name != job_manifest.name_of(request("2"))
    assert made()["spec"]["template"]["metadata"]["labels"][job_manifest.LABEL] == name


def test_it_goes_with_the_controllers_pod() -> None:
    (owner,) = made()["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("Pod", "controller-1", "uid-1")


@pytest.mark.parametrize(
    "text", ["", "{", "{}", '{"kind": "Job"}', json.dumps({**BASE, "kind": "Pod"}), "[]", "null"]
)
def test_what_is_no_job_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(BadTemplateError, match="Job"):
        job_manifest.template(text)


def test_a_job_is_a_template() -> None:
    assert job_manifest.template(json.dumps(BASE)) == BASE
    assert job_manifest.memory_limit(BASE) == "4Gi"
    assert job_manifest.container_name(BASE) == "convert"
