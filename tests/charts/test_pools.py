"""Several pools of Tritons in one release: each by its own values, and each told apart."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from helm_chart import LIGHT, ROOT, Manifest, manifests, refusal

from registry.settings import LoaderSettings
from service import flags


@pytest.fixture(scope="module")
def found() -> list[Manifest]:
    return manifests("pools", *LIGHT)


def named(found: list[Manifest], kind: str) -> dict[str, Manifest]:
    """The objects of a kind that are about Tritons, by what follows the release's name."""
    return {
        item["metadata"]["name"].removeprefix("demo-headrace-"): item
        for item in found
        if item["kind"] == kind and re.search("triton|loader", item["metadata"]["name"])
    }


def loader_of(deployment: Manifest) -> LoaderSettings:
    containers: list[dict[str, Any]] = deployment["spec"]["template"]["spec"]["containers"]
    (arguments,) = [each["args"] for each in containers if each["name"] == "loader"]
    return flags.parse(LoaderSettings, arguments, {}, program="loader")


def test_each_pool_has_pods_of_its_own_whose_loaders_name_it(found: list[Manifest]) -> None:
    deployments = named(found, "Deployment")
    pools = {name: loader_of(each).pool for name, each in deployments.items()}
    assert pools == {"triton": "default", "triton-gpu": "gpu", "loader-batch-0": "batch"}
    plain, gpu = (deployments[name]["spec"] for name in ("triton", "triton-gpu"))
    assert plain["selector"]["matchLabels"] != gpu["selector"]["matchLabels"]
    assert ("replicas" in plain, gpu["replicas"]) == (False, 3)  # the first one is scaled
    inside = gpu["template"]["spec"]
    assert inside["nodeSelector"] == {"nvidia.com/gpu.present": "true"}
    assert plain["template"]["spec"]["nodeSelector"] == {"pool": "cpu"}
    assert inside["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == 1
    assert inside["containers"][0]["image"].startswith("headrace-triton-gpu:")
    assert inside["serviceAccountName"] == plain["template"]["spec"]["serviceAccountName"]


def image_of(*settings: str) -> str:
    found = named(manifests("", *LIGHT, *settings), "Deployment")["triton"]
    (image,) = [
        each["image"]
        for each in found["spec"]["template"]["spec"]["containers"]
        if each["name"] == "triton"
    ]
    return str(image).partition(":")[0]


def test_a_pool_with_gpus_gets_the_image_for_gpus_unless_it_names_another() -> None:
    assert image_of() == "headrace-triton"
    assert image_of("triton.gpus=1") == "headrace-triton-gpu"
    assert image_of("triton.gpus=1", 'triton.image.repository="acme/triton"') == "acme/triton"
    assert image_of('triton.image.repository="acme/triton"') == "acme/triton"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            ("triton.gpus=1", 'triton.image.repository="acme/headrace-triton"'),
            (
                "triton.gpus is 1, and triton.image.repository names acme/headrace-triton, the "
                "image for CPUs: leave it empty for headrace-triton-gpu."
            ),
        ),
        (
            ('triton.image.repository="headrace-triton"', "triton.pools.fast.gpus=2"),
            "triton.pools.fast.gpus is 2, and triton.pools.fast.image.repository names",
        ),
        (("triton.gpus=1", 'triton.device="cpu"'), "triton.gpus asks for 1 GPUs, which nothing"),
        (('triton.device="gpu"',), "triton.device is gpu, and triton.gpus is 0"),
    ],
)
def test_a_device_that_pods_could_not_have_is_refused_with_a_sentence(
    settings: tuple[str, ...], said: str
) -> None:
    assert said in refusal(*settings)


@pytest.mark.parametrize(
    ("settings", "device"),
    [
        ((), "auto"),
        (("triton.gpus=1",), "gpu"),
        (('triton.device="cpu"',), "cpu"),
        (('triton.addresses=["a:1"]',), "auto"),
        (('triton.addresses=["a:1"]', 'triton.device="gpu"'), "gpu"),
    ],
)
def test_a_loader_is_told_the_device_that_its_pod_was_given(
    settings: tuple[str, ...], device: str
) -> None:
    found = named(manifests("", *LIGHT, *settings), "Deployment")
    (loader,) = found.values()
    assert loader_of(loader).device == device


def test_each_pool_of_the_charts_own_has_a_service_and_is_reached_by_gateways(
    found: list[Manifest],
) -> None:
    services = named(found, "Service")
    assert services.keys() == {"triton", "triton-gpu"}
    policies = named(found, "NetworkPolicy")
    assert policies.keys() == {"triton", "triton-gpu", "loader-batch-0"}
    (gateway,) = [
        each
        for each in found
        if each["kind"] == "NetworkPolicy" and each["metadata"]["name"].endswith("-gateway")
    ]
    reached = {
        peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"]
        for rule in gateway["spec"]["egress"]
        for peer in rule.get("to", [])
        if "podSelector" in peer
    }
    assert {"triton", "triton-gpu"} <= reached


def test_each_pool_is_scaled_by_its_own_tokens(found: list[Manifest]) -> None:
    (scaled,) = named(found, "ScaledObject").values()
    (trigger,) = scaled["spec"]["triggers"]
    assert 'pool="default"' in trigger["metadata"]["query"]
    assert scaled["spec"]["scaleTargetRef"]["name"].endswith("-triton")


def test_what_a_pool_says_takes_the_place_of_what_all_say() -> None:
    settings = (
        "triton.gpus=1", "triton.surge=false", "triton.pools.cpu.gpus=0",
        "triton.pools.cpu.surge=true", "triton.pools.cpu.replicas=0", "triton.replicas=2",
    )  # fmt: skip
    deployments = named(manifests("defaults", *LIGHT, *settings), "Deployment")
    spec = deployments["triton-cpu"]["spec"]
    assert spec["replicas"] == 0
    assert spec["strategy"]["rollingUpdate"]["maxSurge"] == 1
    limits = spec["template"]["spec"]["containers"][0]["resources"]["limits"]
    assert limits.keys() == {"memory"}
    assert deployments["triton"]["spec"]["replicas"] == 2


def test_tritons_of_ones_own_are_those_of_one_pool() -> None:
    settings = ('triton.addresses=["one:8001"]', "triton.pools.other.replicas=1")
    deployments = named(manifests("defaults", *LIGHT, *settings), "Deployment")
    assert deployments.keys() == {"loader-0", "triton-other"}
    assert loader_of(deployments["loader-0"]).pool == "default"


@pytest.mark.parametrize("name", ["GPU", "a-", "a" * 21])
def test_a_name_that_is_no_pools_is_refused(name: str) -> None:
    assert f"'{name}' not allowed" in refusal(f"triton.pools.{name}.replicas=1")


def test_the_default_pool_is_not_said_twice() -> None:
    assert "`default` is `triton` itself" in refusal("triton.pools.default.replicas=1")


def test_a_pool_has_no_account_of_its_own() -> None:
    assert "serviceAccount" in refusal("triton.pools.gpu.serviceAccount.name=x")


def test_a_pools_autoscaling_is_checked() -> None:
    said = refusal(
        "triton.pools.gpu.autoscaling.enabled=true",
        "triton.pools.gpu.autoscaling.minReplicas=5",
    )
    assert "triton.pools.gpu.autoscaling.minReplicas is above" in said


def test_the_values_of_the_page_render(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "pools.md").read_text(encoding="utf-8")
    values = next(
        each for each in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if "pools:" in each
    )
    file = tmp_path / "page.yaml"
    file.write_text(values, encoding="utf-8")
    assert yaml.safe_load(values)["triton"]["pools"].keys() == {"gpu"}
    found = named(manifests(str(file.with_suffix("")), *LIGHT), "Deployment")
    assert loader_of(found["triton-gpu"]).pool == "gpu"
