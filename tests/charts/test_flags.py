"""Every flag that the chart gives is one that its service takes, and is read as it was meant."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from helm_chart import CASES, LIGHT, everything, manifests, pod_specs, refusal

from controller.settings import ControllerSettings
from gateway.settings import Settings
from registry.pyfunc.process import PyfuncLimits
from registry.settings import LoaderSettings
from service import flags
from stats.evaluate_main import EvaluateSettings
from stats.fold_main import FoldSettings


def _read(settings: type[Any]) -> Callable[[Sequence[str]], Any]:
    return lambda arguments: flags.parse(settings, arguments, {}, program="test")


READ: dict[str, Callable[[Sequence[str]], Any]] = {
    "gateway.main": _read(Settings),
    "controller.main": _read(ControllerSettings),
    "registry.loader_main": _read(LoaderSettings),
    "stats.fold_main": _read(FoldSettings),
    "stats.evaluate_main": _read(EvaluateSettings),
}


STARTED_BY = ["tini", "--", "python", "-P", "-m"]


def services(case: str, *settings: str) -> dict[str, list[str]]:
    """The arguments of each of our services, by module."""
    found = manifests(case, *LIGHT, *settings) if settings else everything(case)
    return {
        container["command"][-1]: container["args"]
        for _, _, spec in pod_specs(found)
        for container in spec["containers"]
        if container.get("command", [])[:-1] == STARTED_BY and container["command"][-1] in READ
    }


@pytest.mark.parametrize("case", CASES)
def test_every_service_takes_the_flags_that_the_chart_gives_it(
    case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = services(case)
    assert set(found) == set(READ)
    for module, arguments in found.items():
        try:
            READ[module](arguments)
        except SystemExit:
            pytest.fail(f"{module} does not take its flags: {capsys.readouterr().err}")


def test_a_flag_that_nobody_knows_would_be_seen(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        READ["gateway.main"](["--no-such-flag=1"])
    assert "no-such-flag" in capsys.readouterr().err


def test_what_values_say_is_what_services_read() -> None:
    found = services(
        "",
        "gateway.maxBodyBytes=16777216",
        "gateway.tokensInFlight=2000000",
        "gateway.bytesInFlight=134217728",
        "gateway.grpc=false",
        'gateway.allowedOrigins=["https://app.example.com", "http://localhost:3000"]',
        "gateway.pairTextsHours=36",
        "gateway.modelCode.enabled=true",
        "gateway.modelCode.megabytes=2000",
        "gateway.modelCode.closedOff=false",
        "triton.pyfunc.enabled=true",
        "triton.pyfunc.seconds=7",
        "triton.pyfunc.megabytes=6000",
        "triton.pyfunc.closedOff=false",
        'kafka.topicPrefix="shop"',
        'logLevel="warning"',
        "kafka.partitions=12",
        "controller.tickSeconds=0.5",
        'mlflow.url="https://mlflow.example.com"',
        'packages.storeUrl="s3://packages/headrace"',
        'mlflow.sources=["s3://a/{workspace}", "gs://c/{workspace}"]',
        'mlflow.workspaces=["team-a", "team-b"]',
        "mlflow.webhook.enabled=true",
        "controller.pollWithWebhooksSeconds=45",
        "conversion.allowPickle=true",
        "stats.evaluate.falseAlarmDays=0.5",
        "triton.unloadAfterSeconds=1200",
    )
    read = {module: READ[module](arguments) for module, arguments in found.items()}
    gateway, controller = read["gateway.main"], read["controller.main"]
    assert (gateway.max_body_bytes, gateway.tokens_in_flight) == (16_777_216, 2_000_000)
    assert gateway.bytes_in_flight == 134_217_728
    assert gateway.grpc_port == -1
    assert gateway.allowed_origins == ("https://app.example.com", "http://localhost:3000")
    assert (gateway.pair_texts_hours, gateway.pairs_topic) == (36.0, "shop.pairs")
    assert gateway.model_code is controller.model_code is True
    assert (gateway.model_code_megabytes, gateway.model_code_closed_off) == (2000, False)
    loader = read["registry.loader_main"]
    assert loader.pyfunc is controller.pyfunc is True
    assert loader.pyfunc_limits == PyfuncLimits(call_seconds=7.0, megabytes=6000, closed_off=False)
    assert (controller.pyfunc_megabytes, controller.pyfunc_closed_off) == (6000, False)
    assert gateway.log_level == "warning"
    assert gateway.topic_partitions == read["stats.fold_main"].windows_partitions == 12
    assert controller.tick_seconds == 0.5
    assert controller.allow_pickle is True
    assert controller.mlflow_sources == ("s3://a/{workspace}", "gs://c/{workspace}")
    assert controller.mlflow_workspaces == ("team-a", "team-b")
    assert controller.log_level == "WARNING"
    assert (controller.webhook_host, controller.webhook_port) == ("::", 9305)
    assert controller.webhook_url == "http://demo-headrace-controller.space.svc.cluster.local:9305/"
    assert controller.webhook_secret_file == "/etc/headrace/webhook/keys"
    assert controller.poll_with_webhooks_seconds == 45
    assert read["stats.evaluate_main"].false_alarm_days == 0.5
    assert read["stats.evaluate_main"].days_apart == "saturday,sunday"
    assert read["registry.loader_main"].unload_after_seconds == 1200


def test_no_text_is_kept_unless_an_operator_says_so() -> None:
    found = {module: READ[module](arguments) for module, arguments in services("").items()}
    assert found["gateway.main"].pair_texts_hours == 0


def test_all_parts_have_the_same_store_endpoints_and_kafka() -> None:
    read = {module: READ[module](arguments) for module, arguments in services("own-parts").items()}
    for name, value in (
        ("store_url", "s3://models/headrace"),
        ("endpoints", "kubernetes://space"),
        ("reports", "kubernetes://space"),
    ):
        said = [getattr(settings, name) for settings in read.values() if hasattr(settings, name)]
        assert said == [value] * len(said)
        assert len(said) >= 3
    brokers = "kafka-0.example.com:9092,kafka-1.example.com:9092,kafka-2.example.com:9092"
    assert ",".join(read["gateway.main"].kafka_bootstrap) == brokers
    for module in ("controller.main", "stats.fold_main", "stats.evaluate_main"):
        assert read[module].kafka_bootstrap == brokers


def test_whoever_reads_endpoints_for_serving_is_told_the_ceilings() -> None:
    most = {"instances": 4.0, "timeoutSeconds": 2.5, "unkWords": 0.0}
    given = [f"ceilings.{name}={number:g}" for name, number in most.items()]
    found = {
        module: READ[module](arguments)
        for module, arguments in services("defaults", *given).items()
    }
    told = ("gateway.main", "controller.main", "registry.loader_main")
    assert [found[module].ceilings.most for module in told] == [most] * 3
    usual = (word for words in services("defaults").values() for word in words)
    assert not any(word.startswith("--ceilings") for word in usual)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ([], "which mlflow.url must name"),
        (['mlflow.url="https://m.example.com"'], "name a store in packages.storeUrl"),
        (
            [
                'mlflow.url="https://m.example.com"',
                'packages.storeUrl="mlflow-artifacts+https://m.example.com/headrace/packages"',
            ],
            "name a store in packages.storeUrl",
        ),
        (
            [
                'mlflow.url="https://m.example.com"',
                'packages.storeUrl="s3://packages/headrace"',
                'mlflow.sources=["s3://models/{workspace}", "s3://models/mlflow"]',
            ],
            "could name the files of another below s3://models/mlflow",
        ),
    ],
)
def test_workspaces_that_would_read_one_anothers_files_are_refused(
    settings: list[str], sentence: str
) -> None:
    assert sentence in refusal('mlflow.workspaces=["team-a", "team-b"]', *settings)
