from dataclasses import replace
from pathlib import Path

import pytest
from fsspec.core import url_to_fs

from contracts.ceilings import Ceilings
from gateway.settings import Settings
from headrace.stack import services
from headrace.stack.settings import StackSettings
from headrace.stack.state import Home
from headrace.stack.supervisor import Service
from service import flags

EXISTING = StackSettings(
    home=Path("/h"),
    cache=Path("/c"),
    kafka_bootstrap="k:1",
    mlflow_uri="http://m:2",
    triton_grpc="t:3",
)


def test_nothing_of_ours_nor_of_python_is_inherited_from_the_shell() -> None:
    base = {"PATH": "/bin", "HEADRACE_STORE_URL": "x", "PYTHONPATH": "/y", "PYTHONHOME": "/z"}
    env = services.environment(base)
    assert env["PATH"] == "/bin"
    assert not {"HEADRACE_STORE_URL", "PYTHONPATH", "PYTHONHOME"} & env.keys()
    assert env["PYTHONSAFEPATH"] == "1"


def test_existing_services_are_used_and_not_started() -> None:
    plan = {item.name: item for item in services.plan(EXISTING, Home(Path("/h")), {})}
    assert set(plan) == {"loader", "controller", "fold", "stats", "gateway"}
    assert "--kafka-bootstrap=k:1" in plan["stats"].argv
    assert "--kafka-bootstrap=k:1" in plan["fold"].argv
    assert "--kafka-bootstrap=k:1" in plan["gateway"].argv
    assert "--mlflow-uri=http://m:2" in plan["controller"].argv
    assert "--triton-grpc=t:3" in plan["loader"].argv
    # An existing Triton need not share our disk.
    assert "--model-repository=" in plan["loader"].argv


def test_a_workspace_is_of_the_users_own_mlflow_only(tmp_path: Path) -> None:
    base = {"MLFLOW_WORKSPACE": "team-a"}
    for uri, told in ((EXISTING.mlflow_uri, {"team-a"}), (None, {None})):
        plan = services.plan(replace(EXISTING, mlflow_uri=uri), Home(tmp_path), base)
        assert {item.env.get("MLFLOW_WORKSPACE") for item in plan} == told


@pytest.mark.parametrize("device", ["auto", "cpu", "gpu"])
def test_each_loader_is_told_what_its_triton_computes_with(device: str) -> None:
    plan = services.plan(replace(EXISTING, device=device), Home(Path("/h")), {})
    assert [item.name for item in plan if f"--device={device}" in item.argv] == ["loader"]


def test_every_part_that_reads_packages_finds_them_where_the_user_says() -> None:
    s3 = "s3://models/headrace"
    plan = services.plan(replace(EXISTING, package_store=s3), Home(Path("/h")), {})
    told = {item.name for item in plan if f"--store-url={s3}" in item.argv}
    assert told == {"loader", "controller", "stats", "gateway"}
    own = services.plan(EXISTING, Home(Path("/h")), {})
    told = {item.name for item in own if "--store-url=file:///h/packages" in item.argv}
    assert told == {"loader", "controller", "stats", "gateway"}


@pytest.mark.parametrize("name", ["Jürgen Müller", "50%25", "c#", "a?b"])
def test_packages_lie_in_a_home_of_any_name(name: str) -> None:
    home = Home(Path("/h") / name)
    gateway = Settings(home=str(home.root))
    assert url_to_fs(gateway.packages_url)[1] == str(home.packages)
    plan = services.plan(EXISTING, home, {})
    told = {word for each in plan for word in each.argv if word.startswith("--store-url=")}
    (url,) = (word.removeprefix("--store-url=") for word in told)
    assert url_to_fs(url)[1] == str(home.packages)


def test_the_gateway_asks_for_keys_only_where_a_file_is_named() -> None:
    def words(settings: StackSettings) -> tuple[str, ...]:
        return services.plan(settings, Home(Path("/h")), {})[-1].argv

    assert "--keys-file=" in words(EXISTING)
    assert "--keys-file=/k" in words(replace(EXISTING, keys_file=Path("/k")))


def test_the_ceilings_are_told_to_whoever_serves_what_endpoints_ask_for() -> None:
    settings = replace(EXISTING, ceilings=Ceilings({"instances": 2, "timeoutSeconds": 0.5}))
    plan = services.plan(settings, Home(Path("/h")), {})
    told = {item.name for item in plan if "--ceilings=instances=2,timeoutSeconds=0.5" in item.argv}
    assert told == {"loader", "controller", "gateway"}


@pytest.mark.parametrize("code", [True, False])
def test_code_of_versions_runs_in_conversions_only_if_it_is_asked_for(*, code: bool) -> None:
    settings = replace(EXISTING, allow_remote_code=code, allow_pickle=not code)
    plan = services.plan(settings, Home(Path("/h")), {})
    words = {f"--allow-remote-code={code}".lower(), f"--allow-pickle={not code}".lower()}
    assert {item.name for item in plan if words <= set(item.argv)} == {"controller"}


def test_gateways_are_told_whose_pages_may_ask() -> None:
    settings = replace(EXISTING, allowed_origins=("http://localhost:3000", "app://me"))
    plan = services.plan(settings, Home(Path("/h")), {})
    said = {
        item.name
        for item in plan
        if "--allowed-origins=http://localhost:3000,app://me" in item.argv
    }
    assert said == {"gateway"}


def test_each_gateway_is_told_what_its_tokenisers_may_take() -> None:
    settings = replace(EXISTING, gateways=2, tokeniser_megabytes=2500, tokeniser_share_ahead=0.25)
    plan = services.plan(settings, Home(Path("/h")), {})
    gateways = [each.argv for each in plan if each.name.startswith("gateway")]
    assert len(gateways) == 2
    for argv in gateways:
        assert {"--tokeniser-megabytes=2500", "--tokeniser-share-ahead=0.25"} <= set(argv)


def test_what_a_person_does_not_say_of_tokenisers_is_the_gateways_own_default() -> None:
    plan = services.plan(EXISTING, Home(Path("/h")), {})
    (argv,) = [each.argv for each in plan if each.name.startswith("gateway")]
    words = [word for word in argv if word.startswith("--tokeniser")]
    assert len(words) == 2
    told = flags.parse(Settings, words, {}, program="gateway.main")
    usual = flags.parse(Settings, [], {}, program="gateway.main")
    assert told.tokeniser_megabytes == usual.tokeniser_megabytes
    assert told.tokeniser_share_ahead == usual.tokeniser_share_ahead


def test_the_length_of_a_window_is_the_stacks() -> None:
    plan = services.plan(replace(EXISTING, window_seconds=2), Home(Path("/h")), {})
    (fold,) = (item for item in plan if item.name == "fold")
    assert "--window-seconds=2" in fold.argv


def test_a_service_ends_before_what_it_uses() -> None:
    plan = {item.name: item for item in services.plan(EXISTING, Home(Path("/h")), {})}
    assert plan["gateway"].uses == ("kafka",)  # a Triton that is not ours is not stopped
    assert plan["controller"].uses == ("mlflow",)
    assert plan["fold"].uses == ("kafka",)


@pytest.fixture
def twice(cache: Path, tmp_path: Path) -> dict[str, Service]:
    """The plan of two gateways and two embedded Tritons, by the services' names."""
    settings = replace(EXISTING, cache=cache, triton_grpc=None, gateways=2, tritons=2)
    return {each.name: each for each in services.plan(settings, Home(tmp_path), {})}


def words(service: Service) -> dict[str, str]:
    """A service's flags by name."""
    pairs = (word.partition("=") for word in service.argv if word.startswith("--"))
    return {name: value for name, _, value in pairs}


@pytest.mark.real
def test_each_triton_has_a_loader_and_a_model_repository_of_its_own(
    twice: dict[str, Service],
) -> None:
    tritons = [words(twice[name]) for name in ("triton", "triton-2")]
    loaders = [words(twice[name]) for name in ("loader", "loader-2")]
    for triton, loader in zip(tritons, loaders, strict=True):
        assert loader["--triton-grpc"] == f"127.0.0.1:{triton['--grpc-port']}"
        assert loader["--model-repository"] == triton["--model-repository"]
    for name in ("--grpc-port", "--http-port", "--metrics-port", "--model-repository"):
        assert len({triton[name] for triton in tritons}) == 2, name
    for name in ("--loader-name", "--state-dir", "--metrics-port"):
        assert len({loader[name] for loader in loaders}) == 2, name
    assert twice["loader"].uses == ("triton",)
    assert twice["loader-2"].uses == ("triton-2",)


@pytest.mark.real
def test_gateways_share_the_key_that_signs_answers_and_nothing_that_they_write(
    twice: dict[str, Service],
) -> None:
    gateways = [words(twice[name]) for name in ("gateway", "gateway-2")]
    for name in ("--endpoints", "--reports", "--store-url", "--receipt-key-file"):
        assert len({gateway[name] for gateway in gateways}) == 1, name
    for name in ("--http-port", "--grpc-port", "--package-cache"):
        assert len({gateway[name] for gateway in gateways}) == 2, name
    for name in ("gateway", "gateway-2"):
        assert set(twice[name].uses) == {"kafka", "triton", "triton-2"}


def test_gateways_are_as_many_before_an_existing_triton() -> None:
    plan = services.plan(replace(EXISTING, gateways=3), Home(Path("/h")), {})
    names = [each.name for each in plan]
    assert names == [
        "loader", "controller", "fold", "stats", "gateway", "gateway-2", "gateway-3",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("cores", "tritons", "each"), [(1, 1, 1), (2, 1, 1), (2, 2, 1), (8, 1, 4), (32, 2, 8)]
)
def test_tritons_leave_half_of_the_cores_to_all_else(cores: int, tritons: int, each: int) -> None:
    assert services.triton_cores(cores, tritons) == each


def test_gateways_and_the_page_listen_where_they_are_told() -> None:
    settings = replace(EXISTING, listen="0.0.0.0", gateways=2)
    plan = services.plan(settings, Home(Path("/h")), {})
    told = {item.name for item in plan if "--host=0.0.0.0" in item.argv}
    assert told == {"stats", "gateway", "gateway-2"}
    # Browsers get addresses that can be asked.
    (stats,) = (item for item in plan if item.name == "stats")
    assert words(stats)["--gateway-url"] == "http://127.0.0.1:8080"


@pytest.mark.real
def test_mlflow_listens_where_it_is_told_and_kafka_and_triton_do_not(
    cache: Path, tmp_path: Path
) -> None:
    settings = StackSettings(home=tmp_path, cache=tmp_path, parts=cache, listen="0.0.0.0")
    plan = {each.name: each for each in services.plan(settings, Home(tmp_path), {})}
    assert "0.0.0.0" in plan["mlflow"].argv
    assert words(plan["triton"])["--http-address"] == "127.0.0.1"
    assert words(plan["triton"])["--grpc-address"] == "127.0.0.1"
    told = (tmp_path / "kafka" / "server.properties").read_text()
    assert "0.0.0.0" not in told
    assert "listeners=PLAINTEXT://127.0.0.1:9092," in told
    assert [path.name for path in tmp_path.glob("triton-*")] == []  # nothing was downloaded
