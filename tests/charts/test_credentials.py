"""Which Secret each container gets: its component's own, and no writer's where it only reads."""

from helm_chart import LIGHT, Manifest, manifests, one, pod_specs

STORE = (
    'packages.storeUrl="s3://b/p"',
    'packages.existingSecret="store"',
    'mlflow.url="https://mlflow.example.com"',
    'mlflow.existingSecret="mlflow"',
)
OWN = {
    "controller": "controller",
    "convert": "conversion",
    "loader": "triton",
    "gateway": "gateway",
    "evaluate": "stats.evaluate",
}
READERS = ("loader", "gateway", "evaluate")


def light(*settings: str) -> list[Manifest]:
    return manifests("", *LIGHT, *settings)


def credentials(*settings: str) -> dict[str, list[str]]:
    """Secrets whose keys become variables, by container; those without are left out."""
    return {
        container["name"]: [source["secretRef"]["name"] for source in container["envFrom"]]
        for _, _, spec in pod_specs(light(*settings))
        for container in spec["containers"]
        if "envFrom" in container
    }


def mounted(*settings: str) -> dict[str, set[str]]:
    """Secrets that pods mount, by their first container."""
    return {
        spec["containers"][0]["name"]: {
            volume["secret"]["secretName"]
            for volume in spec.get("volumes", ())
            if "secret" in volume
        }
        for _, _, spec in pod_specs(light(*settings))
    }


def test_a_token_of_each_pods_account_lies_beside_kafkas_secret() -> None:
    own = ('kafka.bootstrapServers=["kafka.example:9092"]', 'kafka.existingSecret="login"')
    volumes = [
        volume
        for _, _, spec in pod_specs(light(*own, 'kafka.tokenAudience="events"'))
        for volume in spec["volumes"]
        if volume["name"] == "kafka-login"
    ]
    token = {"serviceAccountToken": {"audience": "events", "path": "token"}}
    sources = [{"secret": {"name": "login"}}, token]
    assert [volume["projected"]["sources"] for volume in volumes] == [sources] * 4


def test_readers_of_an_own_store_hold_nothing_of_mlflows() -> None:
    found = credentials(*STORE)
    assert {name: found[name] for name in READERS} == {name: ["store"] for name in READERS}
    assert found["controller"] == found["convert"] == ["store", "mlflow"]
    assert set(found) == set(OWN)


def test_each_component_gets_its_own_secret_and_no_other() -> None:
    own = [f'{path}.existingSecret="of-{name}"' for name, path in OWN.items()]
    for lies in (STORE, STORE[2:]):  # packages in a store, and in MLflow
        assert credentials(*lies, *own) == {name: [f"of-{name}"] for name in OWN}


def test_an_own_secret_changes_no_other_component() -> None:
    before = credentials(*STORE)
    for name, path in OWN.items():
        after = credentials(*STORE, f'{path}.existingSecret="own"')
        assert after == {**before, name: ["own"]}


def test_where_packages_lie_in_mlflow_a_reader_can_have_a_login_of_its_own() -> None:
    found = credentials(*STORE[2:], 'gateway.existingSecret="reader"')
    assert found["gateway"] == ["reader"]
    assert found["controller"] == ["mlflow"]


def test_the_controller_alone_holds_the_key_of_the_index() -> None:
    for settings, name in (
        ((), one(light(), "Secret", "-index")["metadata"]["name"]),
        (('controller.indexKey.existingSecret="mine"',), "mine"),
    ):
        holders = {pod for pod, secrets in mounted(*settings).items() if name in secrets}
        assert holders == {"controller"}


def test_the_controller_alone_holds_what_webhooks_are_signed_with() -> None:
    on = "mlflow.webhook.enabled=true"
    for settings in ((on,), (on, 'mlflow.webhook.existingSecret="mine"')):
        found = mounted(*settings)
        name = (
            "mine"
            if len(settings) > 1
            else one(light(on), "Secret", "-webhook")["metadata"]["name"]
        )
        assert {pod for pod, secrets in found.items() if name in secrets} == {"controller"}
        mlflow = one(light(*settings), "StatefulSet", "-mlflow")["spec"]["template"]["spec"]
        variables = {each["name"]: each for each in mlflow["containers"][0]["env"]}
        read = variables["MLFLOW_WEBHOOK_SECRET_ENCRYPTION_KEY"]["valueFrom"]["secretKeyRef"]
        assert read == {"name": name, "key": "encryption"}


def test_without_webhooks_nothing_listens_to_them() -> None:
    found = light()
    assert not any(each["metadata"]["name"].endswith("-webhook") for each in found)
    (metrics,) = one(found, "Service", "-controller")["spec"]["ports"]
    assert metrics["name"] == "metrics"


def test_a_key_of_ones_own_is_not_made_anew() -> None:
    made = one(light(), "Secret", "-index")
    assert list(made["data"]) == ["keys"]
    settings = ('controller.indexKey.existingSecret="mine"', 'controller.indexKey.key="k"')
    names = [each["metadata"]["name"] for each in light(*settings) if each["kind"] == "Secret"]
    assert not any(name.endswith("-index") for name in names)


def test_a_conversion_can_have_the_staging_folder_of_a_shared_volume_alone() -> None:
    claim = '[{"name": "packages", "persistentVolumeClaim": {"claimName": "packages"}}]'
    mount = '[{"name": "packages", "mountPath": "/packages/staging", "subPath": "staging"}]'
    found = light(
        'packages.storeUrl="file:///packages"',
        f"conversion.pod.extraVolumes={claim}",
        f"conversion.pod.extraVolumeMounts={mount}",
    )
    (container,) = (
        each
        for _, _, spec in pod_specs(found)
        for each in spec["containers"]
        if each["name"] == "convert"
    )
    paths = [each["mountPath"] for each in container["volumeMounts"]]
    assert [path for path in paths if path.startswith("/packages")] == ["/packages/staging"]
