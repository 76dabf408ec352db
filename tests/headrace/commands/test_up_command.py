import json
import shlex
from dataclasses import replace
from pathlib import Path

from contracts.loading import Device, DeviceKind
from headrace.commands.up import invitation
from headrace.stack import example
from headrace.stack.settings import Ports, StackSettings
from headrace.stack.up import RunningStack

SETTINGS = StackSettings(home=Path("/h"), cache=Path("/c"), ports=Ports(gateway_http=18080))


def test_the_curl_line_is_one_shell_command_with_a_json_body() -> None:
    lines = invitation(RunningStack(SETTINGS, 8.0, ("sentiment-classifier",), {}))
    (line,) = [line for line in lines if "curl" in line]
    words = shlex.split(line)
    assert "http://127.0.0.1:18080/endpoints/sentiment-classifier" in words
    assert json.loads(words[-1])["inputs"]


def test_an_endpoint_that_does_not_answer_is_named_with_the_reason() -> None:
    lines = invitation(RunningStack(SETTINGS, 8.0, (), {"tone": "version 1 Blocked: no room"}))
    assert any("tone (version 1 Blocked: no room)" in line for line in lines)
    assert not any("curl" in line for line in lines)


def test_a_newcomer_is_told_that_a_second_version_rolls_out_and_how_to_move_it() -> None:
    lines = [line.strip() for line in invitation(RunningStack(SETTINGS, 8.0, (), {}))]
    told = {
        tuple(shlex.split(line)[1:3]): shlex.split(line) for line in lines if "--home /h" in line
    }
    replay = told["replay", str(example.script().parent / "texts" / "replay.txt")]
    assert Path(replay[2]).is_file()
    assert "sentiment-classifier" in replay
    looser = told["apply", "-f"]
    assert Path(looser[3]).is_file()
    others = set(told) - {tuple(replay[1:3]), tuple(looser[1:3])}
    assert others == {("rollout", "status"), ("rollout", "promote")}


def test_the_usual_home_is_not_spelled_out() -> None:
    usual = StackSettings(home=Path("~/.headrace").expanduser(), cache=Path("/c"))
    assert not [line for line in invitation(RunningStack(usual, 8.0, (), {})) if "--home" in line]


def test_every_replica_is_printed_with_its_addresses() -> None:
    settings = replace(SETTINGS, gateways=2, tritons=2)
    lines = [line.split() for line in invitation(RunningStack(settings, 8.0, (), {}))]
    said = {words[0]: words[1:] for words in lines if words}
    assert said["gateway"][0] == "http://127.0.0.1:18080"
    assert said["gateway-2"][:3] == ["http://127.0.0.1:18081", "(gRPC", "127.0.0.1:8082,"]
    assert (said["Triton"][0], said["Triton-2"][0]) == ("127.0.0.1:8001", "127.0.0.1:8004")


def test_an_existing_triton_is_printed_as_it_was_named() -> None:
    lines = invitation(RunningStack(replace(SETTINGS, triton_grpc="t:3"), 8.0, (), {}))
    assert any(line.split() == ["Triton", "t:3", "(gRPC)"] for line in lines)


def test_what_each_triton_computes_with_is_printed() -> None:
    gpu = Device(kind=DeviceKind.GPU, name="NVIDIA H200", count=1, memory_bytes=150_000_000_000)
    missing = Device(fault="this Triton can't use a GPU: the driver has no GPU")
    settings = replace(SETTINGS, tritons=4)
    devices = (gpu, Device(), missing, None)
    lines = invitation(RunningStack(settings, 8.0, (), {}, devices))
    tritons = [line.partition("(gRPC)")[2] for line in lines if "Triton" in line]
    assert tritons[0].startswith(", on one NVIDIA H200, 150 of 150 GB in use")
    assert tritons[1:] == [", on the CPU", f", {missing.fault}", ""]


def test_whoever_listens_beyond_this_machine_is_told_who_may_come_in() -> None:
    def said(settings: StackSettings) -> str:
        return " ".join(invitation(RunningStack(settings, 8.0, (), {})))

    assert "listen on" not in said(SETTINGS)
    everywhere = replace(SETTINGS, listen="0.0.0.0")
    assert "listen on 0.0.0.0. Nobody is asked for a key" in said(everywhere)
    assert "http://127.0.0.1:18080" in said(everywhere)
    assert "Gateways ask callers for a key" in said(replace(everywhere, keys_file=Path("/k")))


def test_a_grafana_is_printed_with_where_its_dashboards_are_and_none_is_if_none_is_named() -> None:
    there = "http://g:3000/dashboards/f/headrace"
    lines = invitation(RunningStack(SETTINGS, 8.0, (), {}, grafana=there))
    assert any(line.split() == ["Grafana", there] for line in lines)
    assert not any("Grafana" in line for line in invitation(RunningStack(SETTINGS, 8.0, (), {})))
