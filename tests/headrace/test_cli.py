import json
import os
import re
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from own_ports import own_ports
from typer.testing import CliRunner, Result

from contracts.endpoint import (
    Candidate,
    EndpointSpec,
    EndpointStatus,
    Metadata,
    ModelEndpoint,
    Phase,
)
from contracts.loading import LoadedModel, LoaderReport
from contracts.model import ModelRef
from headrace import errors
from headrace.cli import COMMANDS, app, load_command
from headrace.stack.settings import StackSettings
from headrace.stack.state import claim_home, write_record
from headrace.stack.up import record_of
from registry.conversions.index import KEY_FILE
from registry.packages.store_mark import StoreMark
from registry.stores.endpoints import FileEndpointStore
from registry.stores.reports import FileReports
from service.key_files import make_key_file, read_keys

ROOT = Path(__file__).parent.parent.parent


def run(*words: str) -> Result:
    return CliRunner().invoke(app, list(words), env={"COLUMNS": "200", "HEADRACE_HOME": ""})


def home_with_an_endpoint(root: Path) -> Path:
    with claim_home(root) as home:
        endpoint = ModelEndpoint(
            metadata=Metadata(name="tone"), spec=EndpointSpec(model="tone-model")
        )
        (home.endpoints / "tone.json").write_text(endpoint.model_dump_json(by_alias=True))
    return root


def test_the_version_is_told() -> None:
    assert run("--version").output.startswith("headrace 0.")


@pytest.mark.parametrize(
    "words",
    [
        ("status",),
        ("models",),
        ("gc",),
        ("recount",),
        ("predict", "tone", "text"),
    ],
)
def test_a_command_without_a_stack_ends_with_a_sentence(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    result = run(*words, "--home", str(tmp_path / "none"))
    assert result.exit_code == 9
    assert "headrace up" in result.stderr
    assert "Traceback" not in result.output


def test_up_refuses_to_count_tritons_where_one_is_named() -> None:
    result = run("up", "--triton-grpc", "t:1", "--tritons", "2")
    assert result.exit_code == 2
    assert "--tritons" in result.stderr
    assert "--triton-grpc" in result.stderr


def test_up_refuses_a_ceiling_that_is_none() -> None:
    result = run("up", "--ceiling", "instances=2", "--ceiling", "instance=2")
    assert result.exit_code == 2
    assert "There is no ceiling" in result.stderr


def test_up_refuses_an_origin_that_is_none() -> None:
    result = run("up", "--allow-origin", "http://localhost:3000", "--allow-origin", "localhost")
    assert result.exit_code == 2
    assert "'localhost' is no origin" in result.stderr


@pytest.mark.parametrize("address", ["localhost", "::", "10.0.0.256"])
def test_up_refuses_to_listen_on_what_is_no_ipv4_address(address: str) -> None:
    result = run("up", "--listen", address)
    assert result.exit_code == 2
    assert "no IPv4 address" in result.stderr


@pytest.mark.parametrize("words", [("--gateways", "0"), ("--tritons", "17")])
def test_up_refuses_no_replica_and_more_than_a_machine_holds(words: tuple[str, str]) -> None:
    result = run("up", *words)
    assert result.exit_code == 2
    assert words[0] in result.stderr


@pytest.mark.parametrize(
    "words", [("--tokeniser-megabytes", "-1"), ("--tokeniser-share-ahead", "1.5")]
)
def test_up_refuses_memory_for_tokenisers_that_there_can_not_be(words: tuple[str, str]) -> None:
    result = run("up", *words)
    assert result.exit_code == 2
    assert words[0] in result.stderr


def test_the_status_names_every_gateway_and_triton_that_runs(tmp_path: Path) -> None:
    settings = StackSettings(home=tmp_path / "h", cache=tmp_path, gateways=2, tritons=2)
    with claim_home(settings.home) as home:
        pids = {"gateway": os.getpid(), "gateway-2": os.getpid()}
        write_record(home, record_of(settings, 1.0, pids))
        shown = run("status", "--home", str(home.root)).output
        told = json.loads(run("status", "--json", "--home", str(home.root)).output)["stack"]
    lines = {words[0]: words[1:] for words in map(str.split, shown.splitlines()) if words}
    assert lines["gateway-2"] == ["process", str(os.getpid())]
    for said in ("http://127.0.0.1:8082", "gRPC 127.0.0.1:8083", "gRPC 127.0.0.1:8004"):
        assert said in shown
    assert [each["url"] for each in told["gateways"]] == [
        "http://127.0.0.1:8080",
        "http://127.0.0.1:8082",
    ]
    assert [(each["loader"], each["grpc"]) for each in told["tritons"]] == [
        ("loader", "127.0.0.1:8001"),
        ("loader-2", "127.0.0.1:8004"),
    ]


def test_up_refuses_a_taken_port_before_it_starts_anything(tmp_path: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        existing = ["--triton-grpc", "t:1", "--kafka-bootstrap", "k:1", "--mlflow-uri", "http://m"]
        result = run("up", "--home", str(tmp_path / "h"), f"--port-gateway-http={port}", *existing)
    assert result.exit_code == 4
    assert "--port-gateway-http" in result.stderr
    assert not list((tmp_path / "h" / "logs").iterdir())


def test_up_refuses_a_folder_that_is_no_home(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    existing = ["--triton-grpc", "t:1", "--kafka-bootstrap", "k:1", "--mlflow-uri", "http://m"]
    result = run("up", "--home", str(tmp_path), *existing)
    assert result.exit_code == 6
    assert "not a Headrace home" in result.stderr


def test_status_shows_endpoints_of_a_stack_that_is_down(tmp_path: Path) -> None:
    root = home_with_an_endpoint(tmp_path / "h")
    shown = run("status", "--home", str(root))
    assert "No stack runs on" in shown.output
    assert "tone" in shown.output
    document = json.loads(run("status", "--json", "--home", str(root)).output)
    assert document["running"] is False
    assert document["endpoints"][0]["spec"]["model"] == "tone-model"


@pytest.mark.parametrize(
    ("instances", "threads", "said"),
    [
        (1, 1, "runs as 1 copy of 1 thread on"),
        (2, 1, "runs as 2 copies of 1 thread each on"),
        (4, 4, "runs as 4 copies of 4 threads each on"),
        (1, 8, "runs as 1 copy of 8 threads on"),
        (3, 0, "runs as 3 copies on"),
    ],
)
def test_the_status_tells_how_tritons_run_a_model(
    tmp_path: Path, instances: int, threads: int, said: str
) -> None:
    root = home_with_an_endpoint(tmp_path / "h")
    ref = ModelRef(model="tone-model", version="7", package="a" * 64)
    other = ref.model_copy(update={"package": "b" * 64})
    file = root / "endpoints" / "tone.json"
    endpoint = ModelEndpoint.model_validate_json(file.read_bytes())
    named = endpoint.model_copy(update={"status": EndpointStatus(packages=(ref,))})
    file.write_text(named.model_dump_json(by_alias=True))
    loaded = tuple(
        LoadedModel(ref=each, instances=instances, threads=threads) for each in (ref, other)
    )
    report = LoaderReport(loader="local", triton_grpc="t:1", at=1.0, ready=True, loaded=loaded)
    FileReports(root / "reports").put(report)
    (told,) = json.loads(run("status", "--json", "--home", str(root)).output)["models"]
    assert (told["version"], told["loader"]) == ("7", "local")
    assert (told["instances"], told["threads"]) == (instances, threads)
    shown = " ".join(run("status", "--details", "--home", str(root)).output.split())
    assert f"tone: version 7 {said} the Triton of loader local." in shown
    assert "runs as" not in run("status", "--home", str(root)).output


def test_status_of_an_unknown_endpoint_names_those_there_are(tmp_path: Path) -> None:
    root = home_with_an_endpoint(tmp_path / "h")
    result = run("status", "mood", "--home", str(root))
    assert result.exit_code == 10
    assert "tone" in result.stderr


def test_a_gateway_that_does_not_answer_is_a_sentence(tmp_path: Path) -> None:
    (port,) = own_ports(1)
    result = run("predict", "tone", "text", "--url", f"http://127.0.0.1:{port}")
    assert result.exit_code == 9
    assert str(port) in result.stderr


@pytest.mark.parametrize(
    ("words", "value"),
    [
        (("predict", "tone", "text", "--url"), "http://host:abc"),
        (("predict", "tone", "text", "--url"), "http://host:99999"),
        (("predict", "tone", "text", "--url"), "http://[::1"),
        (("predict", "tone", "text", "--url"), "host:8080"),
        (("replay", "t.txt", "--endpoint", "tone", "--rate", "1", "--url"), "http://host:abc"),
        (("models", "--mlflow-uri"), "http://host:abc"),
        (("recount", "--kafka"), "host"),
        (("stats", "unk-words", "tone", "--kafka"), "host:9092,other"),
        (("recount", "--kafka"), "host:99999"),
        (("up", "--kafka-bootstrap"), "host"),
        (("up", "--mlflow-uri"), "host:5000"),
    ],
)
def test_an_address_that_is_none_is_a_wrong_usage(words: tuple[str, ...], value: str) -> None:
    result = run(*words, value)
    assert result.exit_code == 2, result.exception
    assert "is no address such as" in result.stderr


def test_gc_removes_nothing_while_an_endpoint_can_not_be_read(tmp_path: Path) -> None:
    root = home_with_an_endpoint(tmp_path / "h")
    (root / "endpoints" / "mood.json").write_text("{")
    result = run("gc", "--home", str(root))
    assert result.exit_code == 6
    assert "mood" in result.stderr


def test_gc_removes_nothing_while_the_endpoints_folder_is_away(tmp_path: Path) -> None:
    root = home_with_an_endpoint(tmp_path / "h")
    (root / "endpoints").rename(tmp_path / "elsewhere")
    result = run("gc", "--home", str(root))
    assert result.exit_code == 6
    assert "Nothing was removed" in result.stderr


def test_gc_of_an_empty_store_removes_nothing(tmp_path: Path) -> None:
    root = home_with_an_endpoint(tmp_path / "h")
    assert json.loads(run("gc", "--json", "--home", str(root)).output) == {"removed": []}


def test_gc_removes_nothing_from_a_store_that_another_release_has(tmp_path: Path) -> None:
    root = home_with_an_endpoint(tmp_path / "h")
    (root / "work").mkdir(exist_ok=True)
    make_key_file(root / "work" / KEY_FILE)
    theirs = StoreMark((root / "packages").as_uri(), [b"c" * 32], owner="theirs")
    assert theirs.claim() == ""
    result = run("gc", "--home", str(root))
    assert result.exit_code != 0
    assert "Nothing was removed" in result.stderr
    assert "another release of Headrace (theirs" in " ".join(result.stderr.split())
    assert theirs.foreign() == ""


def test_gc_works_on_a_store_of_its_own(tmp_path: Path) -> None:
    root = home_with_an_endpoint(tmp_path / "h")
    (root / "work").mkdir(exist_ok=True)
    make_key_file(root / "work" / KEY_FILE)
    mine = StoreMark((root / "packages").as_uri(), read_keys(root / "work" / KEY_FILE))
    assert mine.claim() == ""
    assert json.loads(run("gc", "--json", "--home", str(root)).output) == {"removed": []}


def test_a_new_key_is_shown_once_and_only_its_hash_is_stored(tmp_path: Path) -> None:
    file = tmp_path / "keys.jsonl"
    words = ("keys", "create", "alice", "--file", str(file), "--endpoint", "tone", "--json")
    made = json.loads(run(*words).output)
    assert made["endpoints"] == ["tone"]
    assert made["key"] not in file.read_text()
    assert made["sha256"] in file.read_text()
    again = run(*words)
    assert again.exit_code == 10
    assert "alice" in again.stderr


def test_keys_are_listed_rotated_and_revoked(tmp_path: Path) -> None:
    file = str(tmp_path / "keys.jsonl")
    made = json.loads(run("keys", "create", "bob", "--file", file, "--days", "30", "--json").output)
    rotated = json.loads(run("keys", "rotate", "bob", "--file", file, "--json").output)
    assert rotated["key"] != made["key"]
    listed = json.loads(run("keys", "list", "--file", file, "--json").output)
    assert [each["sha256"] for each in listed] == [made["sha256"], rotated["sha256"]]
    assert listed[0]["expires"] < made["expires"]
    table = run("keys", "list", "--file", file).output
    assert "bob" in table
    assert made["key"] not in table
    assert json.loads(run("keys", "revoke", "bob", "--file", file, "--json").output) == {
        "name": "bob",
        "revoked": 2,
    }
    again = run("keys", "revoke", "bob", "--file", file)
    assert (again.exit_code, "no key named 'bob'" in again.stderr) == (10, True)


def test_a_list_of_keys_names_lines_that_open_nothing(tmp_path: Path) -> None:
    file = tmp_path / "keys.jsonl"
    run("keys", "create", "bob", "--file", str(file))
    file.write_text(file.read_text() + "{half\n")
    result = run("keys", "list", "--file", str(file))
    assert (result.exit_code, "bob" in result.stdout) == (10, True)
    assert "line 2" in result.stderr


def test_a_key_with_a_rate_that_none_can_have_is_a_sentence(tmp_path: Path) -> None:
    file = tmp_path / "keys.jsonl"
    result = run("keys", "create", "a", "--file", str(file), "--requests-per-second=-1")
    assert result.exit_code == 10
    assert "requestsPerSecond" in result.stderr or "requests_per_second" in result.stderr
    assert not file.exists()


def test_doctor_says_every_finding_in_json(tmp_path: Path) -> None:
    found = json.loads(run("doctor", "--json", "--home", str(tmp_path / "h")).stdout)
    assert {"Python", "Triton", "Kafka", "disk", "memory", "ports"} <= {
        item["name"] for item in found
    }
    assert all(item["advice"] for item in found if item["verdict"] == "bad")


def test_a_wrong_flag_is_a_usage_error() -> None:
    assert run("up", "--no-such-flag").exit_code == 2


@pytest.mark.parametrize(
    "words", [("-h",), ("get", "-h"), ("rollout", "-h"), ("keys", "list", "-h")]
)
def test_help_is_also_asked_for_with_h(words: tuple[str, ...]) -> None:
    result = run(*words)
    assert (result.exit_code, "Usage: " in result.output) == (0, True)


def test_the_version_is_told_to_programs() -> None:
    told = json.loads(run("version", "-o", "json").output)
    assert set(told) == {"headrace", "python", "kubernetes_client"}


@pytest.mark.parametrize(
    ("words", "code", "status"),
    [
        (("get", "--home", "/none", "-o", "json"), "not_running", 9),
        (("-o", "json", "get", "--home", "/none"), "not_running", 9),
        (("get", "--home", "/none", "-oyaml"), "not_running", 9),
        (("keys", "list", "--file", "/none", "--json"), "request_failed", 10),
        (("get", "--nope", "-o", "json"), "usage", 2),
        (("--nope", "get", "--output=json"), "usage", 2),
        (("gone", "-o", "json"), "usage", 2),
    ],
)
def test_errors_are_json_where_that_was_asked_for(
    words: tuple[str, ...], code: str, status: int
) -> None:
    result = run(*words)
    assert (result.exit_code, result.stdout) == (status, "")
    (line,) = result.stderr.splitlines()
    error = json.loads(line)["error"]
    assert (error["code"], error["exit_status"]) == (code, status)
    assert error["message"]


@pytest.mark.parametrize("words", [(), *((name,) for name in COMMANDS), ("rollout", "promote")])
def test_a_switch_is_shown_without_a_value(words: tuple[str, ...]) -> None:
    said = run(*words, "--help").output
    assert "--help" in said
    assert "bool" not in said


@pytest.mark.parametrize("name", COMMANDS)
def test_the_program_knows_the_help_of_a_command_before_it_loads_it(name: str) -> None:
    command = load_command(name)
    assert command.name == name or getattr(command, "commands", None)
    assert command.help.splitlines()[0] == COMMANDS[name][1]


def test_a_group_of_one_command_is_a_group() -> None:
    result = run("packages", "--help")
    assert (result.exit_code, "verify" in result.output) == (0, True)


@pytest.mark.parametrize("words", [("gc",), ("packages", "verify")])
def test_a_package_that_the_command_line_alone_lacks_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: tuple[str, ...]
) -> None:
    monkeypatch.setitem(sys.modules, "fsspec", None)
    modules = ("", ".gc", ".store", ".store_mark")
    again = tuple(f"registry.packages{name}" for name in modules)
    for name in (*again, "headrace.commands.packages"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    result = run(*words, "--home", str(tmp_path))
    assert result.exit_code == 3
    assert "needs the package fsspec" in result.stderr
    assert "pip install" in result.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_a_script_that_completes(shell: str) -> None:
    assert "_HEADRACE_COMPLETE" in run("completion", shell).output


def completed(root: Path, *words: str) -> list[str]:
    """What bash offers for the last word."""
    env = {
        "_HEADRACE_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(("headrace", *words)),
        "COMP_CWORD": str(len(words)),
        "HEADRACE_HOME": str(root),
        "HEADRACE_NAMESPACE": "",
    }
    return CliRunner().invoke(app, [], env=env, prog_name="headrace").output.split()


@pytest.mark.parametrize(
    "words", [("get", "t"), ("rollout", "promote", "t"), ("stats", "list", ""), ("delete", "to")]
)
def test_names_of_endpoints_are_completed(tmp_path: Path, words: tuple[str, ...]) -> None:
    root = home_with_an_endpoint(tmp_path / "h")
    assert completed(root, *words) == ["tone"]
    assert completed(tmp_path / "none", *words) == []


def test_versions_are_completed_from_the_home(tmp_path: Path) -> None:
    root = home_with_an_endpoint(tmp_path / "h")
    store = FileEndpointStore(root / "endpoints")
    endpoint = store.get("tone")
    assert endpoint is not None
    status = EndpointStatus(candidate=Candidate(version="12", phase=Phase.CONVERTING))
    store.put(endpoint.model_copy(update={"status": status}))
    assert completed(root, "rollout", "pin", "tone", "") == ["12"]
    assert completed(root, "rollout", "retry", "tone", "") == []
    assert completed(tmp_path / "none", "rollout", "pin", "tone", "") == []


def test_commands_and_forms_are_completed(tmp_path: Path) -> None:
    assert completed(tmp_path, "comp") == ["completion"]
    assert completed(tmp_path, "get", "-o", "y") == ["yaml"]


@pytest.mark.slow
def test_the_program_begins_without_what_only_services_need() -> None:
    heavy = [
        "fastapi",
        "fsspec",
        "grpc",
        "httpx",
        "kafka",
        "kubernetes",
        "mlflow",
        "numpy",
        "scipy",
    ]
    code = (
        "import sys, headrace.cli, headrace.commands.status, headrace.commands.endpoints, "
        f"headrace.commands.rollout; print([name for name in {heavy} if name in sys.modules])"
    )
    ran = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True
    )
    assert ran.stdout == "[]\n"


def test_the_page_of_the_command_line_has_each_exit_status_with_its_code() -> None:
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    told = {
        (int(status), code)
        for status, code in re.findall(r"^\| (\d+) \| `(\w+)` \|", page, re.MULTILINE)
    }
    found = {
        (each.exit_status, each.code)
        for each in vars(errors).values()
        if isinstance(each, type)
        and issubclass(each, errors.HeadraceError)
        and each is not errors.HeadraceError
    }
    assert told == found | {(2, "usage")}


def test_each_code_of_an_error_is_its_own() -> None:
    found = [
        each
        for each in vars(errors).values()
        if isinstance(each, type) and issubclass(each, errors.HeadraceError)
    ]
    codes = [each.code for each in found]
    assert len(set(codes)) == len(codes)
    assert 2 not in {each.exit_status for each in found}  # a usage that is wrong


_ALONE = """
import sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {forbidden}:
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Finder())
import headrace.cli
from headrace.commands import (
    doctor, endpoints, keys, models, predict, replay, rollout, stats, status, up
)
from service.cluster import access
from registry.stores import cluster_endpoints, heartbeats
import service.cluster.reports
"""


@pytest.mark.slow
def test_the_package_alone_brings_what_commands_on_a_cluster_import() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    name = re.compile(r"[\w-]+")
    brought = {name.match(each)[0] for each in project["dependencies"]}  # type: ignore[index]
    extras = {
        name.match(each)[0]  # type: ignore[index]
        for lines in project["optional-dependencies"].values()
        for each in lines
    }
    modules = {
        "kafka-python": "kafka",
        "scikit-learn": "sklearn",
        "prometheus-client": "prometheus_client",
    }
    forbidden = {modules.get(each, each.replace("-", "_")) for each in extras - brought}
    forbidden -= {"headrace", "typing_extensions"}
    assert {"numpy", "fastapi", "mlflow", "kafka"} <= forbidden | {"mlflow"}
    ran = subprocess.run(
        [sys.executable, "-P", "-c", _ALONE.format(forbidden=forbidden)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
