"""Wrong values are a sentence at the install, or where a person looks at a pod; no crash loop."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from real_cluster import CommandError, Release, until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

SAID_SECONDS = 180.0
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
NOWHERE = "--set=kafka.bootstrapServers={nowhere:9092}"


def refusal(release: Release, *flags: str) -> str:
    """What helm says to an install with these values, of which it makes nothing."""
    before = release.cluster.objects()
    with pytest.raises(CommandError) as refused:
        release.install(*flags)
    assert not release.cluster.objects() - before
    return str(refused.value)


def said(release: Release, kind: str, name: str, words: str) -> int:
    """How often Events about an object held the words."""
    about = f"--field-selector=involvedObject.kind={kind},involvedObject.name={name}"
    events = release.cluster.get("events", about)["items"]
    return sum(each.get("count") or 1 for each in events if words in each["message"])


def says(release: Release, component: str, words: str, times: int = 1) -> bool:
    """Whether Events about one of a component's pods held the words so often."""
    names = [pod["metadata"]["name"] for pod in release.pods(component)]
    return any(said(release, "Pod", name, words) >= times for name in names)


def containers(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return list(pod["status"].get("containerStatuses", []))


def test_an_unknown_value_is_named(absent: Release) -> None:
    assert "gatway" in refusal(absent, "--set=gatway.replicas=3")
    assert "replica" in refusal(absent, "--set=gateway.replica=3")


def test_a_mistyped_value_is_named(absent: Release) -> None:
    assert "replicas" in refusal(absent, "--set-string=gateway.replicas=many")


def test_a_secret_that_is_not_there_is_named(absent: Release) -> None:
    sentence = refusal(absent, "--set=gateway.keys.existingSecret=no-such-keys")
    assert 'gateway.keys.existingSecret names the Secret "no-such-keys"' in sentence


def test_a_storage_class_that_is_not_there_is_named(absent: Release) -> None:
    sentence = refusal(absent, "--set=kafka.embedded.persistence.storageClass=no-such-class")
    assert 'kafka.embedded.persistence.storageClass is "no-such-class"' in sentence


@pytest.fixture
def no_default_class(absent: Release) -> Iterator[None]:
    """A cluster without a default StorageClass, as long as the test runs."""
    classes = absent.cluster.get("storageclass")["items"]
    defaults = [
        each["metadata"]["name"]
        for each in classes
        if each["metadata"].get("annotations", {}).get(DEFAULT_CLASS) == "true"
    ]
    annotate = ("annotate", "storageclass", *defaults, "--overwrite")
    if not defaults:
        yield
        return
    absent.cluster.kubectl(*annotate, f"{DEFAULT_CLASS}=false")
    yield
    absent.cluster.kubectl(*annotate, f"{DEFAULT_CLASS}=true")


def test_where_no_storage_class_is_the_default_the_value_to_set_is_named(
    absent: Release, no_default_class: None
) -> None:
    sentence = refusal(absent)
    assert "this cluster has no default StorageClass" in sentence
    assert "persistence.storageClass" in sentence


# What helm can't know, or may not look at, is said of the pods.


def test_without_helms_checks_a_missing_secret_is_said_of_the_pod(absent: Release) -> None:
    unchecked = ("--set=checks=false", "--set=gateway.keys.existingSecret=no-such-keys")
    absent.install(*unchecked, "--wait=false")
    until(
        "the gateway's pods say which Secret is missing",
        SAID_SECONDS,
        partial(says, absent, "gateway", 'secret "no-such-keys" not found'),
    )
    assert restarted(absent) == []


def test_without_helms_checks_a_missing_storage_class_is_said_of_the_claim(
    absent: Release,
) -> None:
    value = "kafka.embedded.persistence.storageClass=no-such-class"
    absent.install("--set=checks=false", f"--set={value}", "--wait=false")

    def named() -> bool:
        claims = [each["metadata"]["name"] for each in absent.cluster.get("pvc")["items"]]
        words = '"no-such-class" not found'
        return any(said(absent, "PersistentVolumeClaim", name, words) for name in claims)

    until("the claim says which class is missing", SAID_SECONDS, named)
    until(
        "Kafka's pod says what it waits for",
        SAID_SECONDS,
        partial(says, absent, "kafka", "unbound immediate PersistentVolumeClaims"),
    )


def test_a_kafka_that_can_not_be_reached_is_said_of_the_pods_that_need_it(absent: Release) -> None:
    """Those that can do without it are ready; nothing is restarted for it."""
    absent.install(NOWHERE, "--wait=false")
    for component in ("gateway", "controller", "triton", "mlflow"):
        absent.until_ready(component)
    for component in ("fold", "evaluate"):
        until(
            f"{component} says which value to look at, again and again",
            SAID_SECONDS,
            partial(says, absent, component, "kafka.bootstrapServers", times=4),
        )
        assert "nowhere" in absent.cluster.kubectl("logs", "-l", selector(component))
    assert restarted(absent) == []


def selector(component: str) -> str:
    return f"app.kubernetes.io/component={component}"


def restarted(release: Release) -> list[str]:
    """Containers of ours that ended and were started again."""
    pods = release.cluster.get("pods", "-l", f"app.kubernetes.io/instance={release.name}")["items"]
    return [
        f"{pod['metadata']['name']}/{each['name']}"
        for pod in pods
        for each in containers(pod)
        if each["restartCount"]
    ]
