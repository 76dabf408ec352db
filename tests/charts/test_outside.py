"""How callers and readers come in from outside, and how gateways follow their load."""

import json
from typing import Any

import pytest
from helm_chart import LIGHT, Manifest, manifests, one, refusal

ADAPTER = ("custom.metrics.k8s.io/v1beta1",)
UI = "stats.evaluate.ui"
UI_INGRESS = (f"{UI}.ingress.enabled=true", f'{UI}.ingress.hosts=[{{"host": "ui.example.com"}}]')
LOGIN = f'{UI}.ingress.annotations={{"nginx.ingress.kubernetes.io/auth-url": "https://sso"}}'
EDGE = f'{UI}.authentication="edge"'


@pytest.fixture(scope="module")
def platform() -> list[Manifest]:
    return manifests("platform", *LIGHT)


def paths(ingress: Manifest) -> dict[str, list[tuple[str, str]]]:
    """Paths and their types of each host; every one of them leads to the same port."""
    return {
        rule["host"]: [(each["path"], each["pathType"]) for each in rule["http"]["paths"]]
        for rule in ingress["spec"]["rules"]
    }


def ports(ingress: Manifest) -> set[tuple[str, str]]:
    """The Services and ports that an Ingress leads to."""
    services = [
        each["backend"]["service"]
        for rule in ingress["spec"]["rules"]
        for each in rule["http"]["paths"]
    ]
    return {(service["name"], service["port"]["name"]) for service in services}


# The Service


def service_of_callers(*settings: str) -> dict[str, Any]:
    """Its spec."""
    found = manifests("", *LIGHT, *(f"gateway.service.{each}" for each in settings))
    return dict(one(found, "Service", "-gateway")["spec"])


def test_a_load_balancer_is_of_a_class_and_keeps_callers_addresses() -> None:
    spec = service_of_callers(
        'type="LoadBalancer"', 'loadBalancerClass="eks/nlb"', 'externalTrafficPolicy="Local"'
    )
    assert (spec["loadBalancerClass"], spec["externalTrafficPolicy"]) == ("eks/nlb", "Local")


def test_the_service_has_the_clusters_addresses_unless_values_say_which() -> None:
    assert not {"ipFamilyPolicy", "ipFamilies"} & service_of_callers().keys()
    families = ["IPv6", "IPv4"]
    policy = "PreferDualStack"
    spec = service_of_callers(f'ipFamilyPolicy="{policy}"', f"ipFamilies={json.dumps(families)}")
    assert (spec["ipFamilyPolicy"], spec["ipFamilies"]) == (policy, families)


def test_components_listen_on_whichever_addresses_pods_have() -> None:
    hosts = {
        arg.partition("=")[2]
        for item in manifests("", *LIGHT, "mlflow.webhook.enabled=true")
        if item["kind"] in {"Deployment", "StatefulSet"}
        for container in item["spec"]["template"]["spec"]["containers"]
        for arg in container.get("args", ())
        if arg.startswith(("--host=", "--metrics-host=", "--webhook-host="))
    }
    assert hosts == {"::"}


# Ingress


def test_an_ingress_has_every_host_with_its_paths_and_certificates(
    platform: list[Manifest],
) -> None:
    ingress = one(platform, "Ingress", "-gateway")
    annotations = {"nginx.ingress.kubernetes.io/proxy-body-size": "8m"}
    assert ingress["metadata"]["annotations"] == annotations
    assert paths(ingress) == {
        "first.example.com": [("/", "Prefix")],
        "second.example.com": [("/v2", "Prefix"), ("/endpoints/shop", "Exact")],
        "*.models.example.com": [("/", "Prefix")],
    }
    assert ingress["spec"]["tls"] == [
        {"hosts": ["first.example.com"], "secretName": "first-tls"},
        {"hosts": ["*.models.example.com"], "secretName": "wildcard-tls"},
    ]
    assert ports(ingress) == {("demo-headrace-gateway", "http")}


def test_grpc_has_an_ingress_of_its_own_that_may_share_a_host(platform: list[Manifest]) -> None:
    ingress = one(platform, "Ingress", "-gateway-grpc")
    assert ingress["metadata"]["annotations"] == {
        "nginx.ingress.kubernetes.io/backend-protocol": "GRPC"
    }
    assert paths(ingress) == {
        "first.example.com": [("/inference.GRPCInferenceService", "Prefix")],
        "grpc.example.com": [("/", "Prefix")],
    }
    # Without hosts of its own a certificate is for all of them.
    assert ingress["spec"]["tls"] == [
        {"hosts": ["first.example.com", "grpc.example.com"], "secretName": "grpc-tls"}
    ]
    assert ports(ingress) == {("demo-headrace-gateway", "grpc")}


def test_no_ingress_or_route_leads_to_the_operations_port(platform: list[Manifest]) -> None:
    services = {
        name for item in platform if item["kind"] == "Ingress" for name, _ in ports(item)
    } | {
        backend["name"]
        for item in platform
        if item["kind"] in {"HTTPRoute", "GRPCRoute"}
        for rule in item["spec"]["rules"]
        for backend in rule["backendRefs"]
    }
    assert services == {"demo-headrace-gateway", "demo-headrace-evaluate-ui"}


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (["gateway.grpcIngress.enabled=true"], "needs gateway.grpcIngress.hosts"),
        (
            [
                "gateway.grpcIngress.enabled=true",
                'gateway.grpcIngress.hosts=[{"host": "a"}]',
                "gateway.grpc=false",
            ],
            "gateway.grpcIngress.enabled needs gateway.grpc.",
        ),
        (
            ["gateway.autoscaling.enabled=true", "gateway.autoscaling.cpuMillicores=0"],
            "has nothing to scale by",
        ),
    ],
)
def test_what_would_lead_nowhere_is_refused(settings: list[str], sentence: str) -> None:
    assert sentence in refusal(*settings)


# Gateway API


def test_routes_have_their_listeners_hosts_paths_and_filters(platform: list[Manifest]) -> None:
    route = one(platform, "HTTPRoute", "-gateway")["spec"]
    assert route["hostnames"] == ["a.example.com", "b.example.com"]
    (rule,) = route["rules"]
    assert [match["path"] for match in rule["matches"]] == [
        {"type": "PathPrefix", "value": "/v2"},
        {"type": "PathPrefix", "value": "/endpoints"},
    ]
    assert [each["type"] for each in rule["filters"]] == ["RequestHeaderModifier"]
    grpc = one(platform, "GRPCRoute", "-gateway")
    assert grpc["spec"]["hostnames"] == ["grpc.example.com", "*.grpc.example.com"]
    assert [each["sectionName"] for each in route["parentRefs"]] == ["https"]
    assert [each["sectionName"] for each in grpc["spec"]["parentRefs"]] == ["grpc"]
    assert grpc["metadata"]["annotations"] == {"example.com/owner": "ml"}


# The page /ui


def test_the_page_is_not_published_without_somebody_who_asks_for_a_login() -> None:
    assert "/ui asks for no login" in refusal(*UI_INGRESS)
    route = (f"{UI}.gatewayApi.enabled=true", f'{UI}.gatewayApi.parentRefs=[{{"name": "edge"}}]')
    assert "/ui asks for no login" in refusal(*route)
    assert "has no annotations" in refusal(*UI_INGRESS, EDGE)
    assert "stats.evaluate.pod.sidecars has none" in refusal(f'{UI}.authentication="sidecar"')
    assert "needs stats.evaluate.ui.ingress.hosts" in refusal(UI_INGRESS[0], EDGE)
    assert "gatewayApi.parentRefs" in refusal(route[0], EDGE)


def test_a_controller_that_asks_for_a_login_publishes_the_page_and_not_the_metrics() -> None:
    found = manifests("", *LIGHT, *UI_INGRESS, EDGE, LOGIN)
    ingress = one(found, "Ingress", "-evaluate-ui")
    assert paths(ingress) == {"ui.example.com": [("/ui", "Prefix")]}
    assert ports(ingress) == {("demo-headrace-evaluate-ui", "ui")}
    (port,) = one(found, "Service", "-evaluate-ui")["spec"]["ports"]
    assert port["targetPort"] == 9300


def let_in(found: list[Manifest], port: int) -> list[dict[str, Any]]:
    """Who may reach a port of evaluate's pod."""
    rules = one(found, "NetworkPolicy", "-evaluate")["spec"]["ingress"]
    return [
        peer for rule in rules if port in {each["port"] for each in rule["ports"]}
        for peer in rule["from"]
    ]  # fmt: skip


def test_a_proxy_in_the_pod_is_all_of_it_that_those_outside_reach(
    platform: list[Manifest],
) -> None:
    """It needs the whole host, for where it sends people back to after their login."""
    assert paths(one(platform, "Ingress", "-evaluate-ui")) == {"ui.example.com": [("/", "Prefix")]}
    route = one(platform, "HTTPRoute", "-evaluate-ui")
    assert route["metadata"]["annotations"] == {"example.com/owner": "ml"}
    assert route["spec"]["hostnames"] == ["ui.example.com"]
    (rule,) = route["spec"]["rules"]
    assert [match["path"]["value"] for match in rule["matches"]] == ["/"]
    assert [each["type"] for each in rule["filters"]] == ["ExtensionRef"]
    (port,) = one(platform, "Service", "-evaluate-ui")["spec"]["ports"]
    assert port["targetPort"] == 4180

    edge = {"namespaceSelector": {"matchLabels": {"name": "edge"}}}
    monitoring = {"namespaceSelector": {"matchLabels": {"name": "prometheus"}}}
    narrowed = manifests(
        "platform",
        *LIGHT,
        'networkPolicy.uiCallers=[{"namespaceSelector": {"matchLabels": {"name": "edge"}}}]',
        'networkPolicy.monitoring=[{"namespaceSelector": {"matchLabels": {"name": "prometheus"}}}]',
    )
    assert let_in(narrowed, 4180) == [edge]
    assert monitoring in let_in(narrowed, 9300)
    assert edge not in let_in(narrowed, 9300)


def test_the_proxy_may_have_another_port() -> None:
    found = manifests("platform", *LIGHT, f"{UI}.sidecarPort=8443")
    (port,) = one(found, "Service", "-evaluate-ui")["spec"]["ports"]
    assert port["targetPort"] == 8443
    assert let_in(found, 8443)
    assert not let_in(found, 4180)


def test_by_default_nothing_of_the_page_is_published() -> None:
    assert "demo-headrace-evaluate-ui" not in {
        item["metadata"]["name"] for item in manifests("", *LIGHT)
    }


# Autoscaling


def scaling(*settings: str, apis: tuple[str, ...] = ()) -> dict[str, Any]:
    """The spec of the gateways' autoscaler."""
    found = manifests("", *LIGHT, "gateway.autoscaling.enabled=true", *settings, apis=apis)
    return dict(one(found, "HorizontalPodAutoscaler", "-gateway")["spec"])


def aims(spec: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What each metric aims at, by its type."""
    fields = {"ContainerResource": "containerResource", "Pods": "pods"}
    return {each["type"]: each[fields[each["type"]]]["target"] for each in spec["metrics"]}


def test_gateways_scale_on_tokens_in_flight_where_the_cluster_can_tell_them() -> None:
    given = aims(scaling(apis=ADAPTER))
    # Half of what a pod lets in, above which it refuses.
    assert given["Pods"] == {"type": "AverageValue", "averageValue": "131072"}
    more = aims(scaling("gateway.tokensInFlight=2000000", apis=("custom.metrics.k8s.io/v1beta2",)))
    assert more["Pods"]["averageValue"] == "1000000"


def test_without_a_metrics_adapter_gateways_scale_on_a_core_and_not_on_what_they_request() -> None:
    """A metric that nobody offers would keep pods from ever going."""
    core = {"ContainerResource": {"type": "AverageValue", "averageValue": "700m"}}
    assert aims(scaling()) == core
    assert aims(scaling('gateway.resources.requests.cpu="2"')) == core


def test_values_of_before_mean_what_they_meant() -> None:
    given = aims(
        scaling("gateway.autoscaling.cpuPercent=50", "gateway.autoscaling.tokensInFlightPerPod=9")
    )
    assert given["ContainerResource"] == {"type": "Utilization", "averageUtilization": 50}
    assert given["Pods"]["averageValue"] == "9"
    off = scaling("gateway.autoscaling.tokensInFlightPerPod=0", apis=ADAPTER)
    assert set(aims(off)) == {"ContainerResource"}
    alone = scaling("gateway.autoscaling.cpuMillicores=0", apis=ADAPTER)
    assert set(aims(alone)) == {"Pods"}


def test_keda_asks_prometheus_for_the_same() -> None:
    found = manifests(
        "", *LIGHT, "gateway.autoscaling.enabled=true", 'gateway.autoscaling.kind="keda"'
    )
    assert "HorizontalPodAutoscaler" not in {item["kind"] for item in found}
    cpu, tokens = one(found, "ScaledObject", "-gateway")["spec"]["triggers"]
    assert cpu["metadata"] == {"containerName": "gateway", "value": "700m"}
    assert cpu["metricType"] == tokens["metricType"] == "AverageValue"
    query = 'sum(headrace_gateway_tokens_in_flight{namespace="space"})'
    assert tokens["metadata"]["query"] == query
    assert tokens["metadata"]["threshold"] == "131072"


def test_how_fast_pods_come_and_go_is_said_by_values(platform: list[Manifest]) -> None:
    behaviour = {
        name: one(platform, "HorizontalPodAutoscaler", f"-{name}")["spec"]["behavior"]
        for name in ("gateway", "triton", "fold")
    }
    assert behaviour["gateway"] == {
        "scaleUp": {
            "stabilizationWindowSeconds": 0,
            "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}],
            "selectPolicy": "Max",
        },
        # Nothing is less than the default, and is kept.
        "scaleDown": {
            "stabilizationWindowSeconds": 0,
            "policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}],
        },
    }
    assert behaviour["triton"] == {
        "scaleUp": {"stabilizationWindowSeconds": 30},
        "scaleDown": {"stabilizationWindowSeconds": 300},
    }
    assert behaviour["fold"] == {"scaleDown": {"selectPolicy": "Disabled"}}


def test_keda_moves_as_fast_as_an_autoscaler_of_kubernetes(platform: list[Manifest]) -> None:
    by_keda = manifests(
        "platform",
        *LIGHT,
        *(f'{name}.autoscaling.kind="keda"' for name in ("gateway", "triton", "stats.fold")),
    )
    for name in ("gateway", "triton", "fold"):
        advanced = one(by_keda, "ScaledObject", f"-{name}")["spec"]["advanced"]
        kubernetes = one(platform, "HorizontalPodAutoscaler", f"-{name}")["spec"]["behavior"]
        assert advanced["horizontalPodAutoscalerConfig"]["behavior"] == kubernetes
