"""Logs: one JSON object a line, with every field; lines for people on a terminal."""

import io
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka.cluster import ClusterMetadata
from kafka.protocol.metadata import MetadataResponse

from service.logs import LIBRARIES, configure

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "contracts", "measures", "preprocess", "service", "gateway", "registry", "rollout", "stats",
    "controller", "headrace",
)  # fmt: skip
SERVICES = ("gateway", "controller", "loader", "conversion", "fold", "stats")
_VERSION = 12
_BROKER = MetadataResponse.MetadataResponseBroker(1, "127.0.0.1", 9092, None, version=_VERSION)
METADATA = MetadataResponse(
    version=_VERSION, brokers=[_BROKER], cluster_id="c", controller_id=1, topics=[]
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    libraries = {name: logging.getLogger(name).level for name in LIBRARIES}
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    for name, before in libraries.items():
        logging.getLogger(name).setLevel(before)


def test_a_record_is_one_line_of_json_with_its_extra_fields() -> None:
    stream = io.StringIO()
    configure("loader", "info", stream=stream)
    logging.getLogger("a.b").warning("two\nlines %s", "x", extra={"reason": "why", "n": 3})
    (line,) = stream.getvalue().splitlines()
    told = json.loads(line)
    assert told["message"] == "two\nlines x"
    assert (told["level"], told["service"], told["logger"]) == ("warning", "loader", "a.b")
    assert (told["reason"], told["n"]) == ("why", 3)
    assert told["time"].endswith("+00:00")


def test_an_exception_stays_on_its_line() -> None:
    stream = io.StringIO()
    configure("loader", "info", stream=stream)
    try:
        raise ValueError("bad\nvalue")
    except ValueError:
        logging.getLogger("a.b").exception("failed")
    (line,) = stream.getvalue().splitlines()
    assert "ValueError: bad\nvalue" in json.loads(line)["exception"]


def test_a_terminal_gets_lines_for_people_where_that_is_asked_for() -> None:
    stream = Terminal()
    configure("gateway", "info", "auto", stream=stream)
    logging.getLogger("a.b").info("started", extra={"port": 8080})
    assert stream.getvalue().endswith("INFO    started port=8080\n")


def test_json_is_json_on_a_terminal_too() -> None:
    stream = Terminal()
    configure("gateway", "info", stream=stream)
    logging.getLogger("a.b").info("started")
    assert json.loads(stream.getvalue())["message"] == "started"


def test_what_is_below_the_level_is_not_written() -> None:
    stream = io.StringIO()
    configure("gateway", "warning", stream=stream)
    logging.getLogger("a.b").info("quiet")
    assert stream.getvalue() == ""


def test_what_strangers_send_is_no_line_of_the_log() -> None:
    stream = io.StringIO()
    configure("gateway", "info", stream=stream)
    logging.getLogger("uvicorn.error").warning("Invalid HTTP request received.")
    assert stream.getvalue() == ""
    logging.getLogger("uvicorn.error").error("a bug")
    assert "a bug" in stream.getvalue()


def test_an_answer_with_credentials_that_botocore_can_not_read_is_no_line_of_the_log() -> None:
    stream = io.StringIO()
    configure("gateway", "debug", stream=stream)
    logging.getLogger("botocore.credentials").warning("Refreshing failed: b'<SecretAccessKey>'")
    assert stream.getvalue() == ""


@pytest.mark.parametrize(
    "library", [name for name in LIBRARIES if LIBRARIES[name] == logging.WARNING]
)
def test_libraries_speak_up_only_when_something_is_wrong(library: str) -> None:
    stream = io.StringIO()
    configure("gateway", "info", stream=stream)
    logging.getLogger(f"{library}.part").info("one more connection")
    logging.getLogger(f"{library}.part").warning("wrong")
    (line,) = stream.getvalue().splitlines()
    assert json.loads(line)["message"] == "wrong"


def test_a_level_above_a_librarys_own_holds_for_it_too() -> None:
    stream = io.StringIO()
    configure("gateway", "error", stream=stream)
    logging.getLogger("grpc").warning("wrong")
    assert stream.getvalue() == ""


@pytest.mark.parametrize("service", SERVICES)
def test_an_idle_kafka_client_adds_no_line_at_info(service: str) -> None:
    stream = io.StringIO()
    configure(service, "info", stream=stream)
    client = ClusterMetadata(bootstrap_servers=["127.0.0.1:9"])
    for _ in range(3):  # of its refreshes, one every five seconds
        client.update_metadata(METADATA)
    assert client.brokers()
    for part in ("net.manager", "net.connection", "coordinator.base", "coordinator.heartbeat"):
        logging.getLogger(f"kafka.{part}").info("Closing idle connection to node 1")
    logging.getLogger(service).info("ready")
    (line,) = stream.getvalue().splitlines()
    assert json.loads(line)["message"] == "ready"


def test_a_kafka_client_without_a_broker_adds_no_line_for_each_of_its_attempts() -> None:
    stream = io.StringIO()
    configure("controller", "info", stream=stream)
    for _ in range(100):
        logging.getLogger("kafka.net.manager").error("Bootstrap attempt to 127.0.0.1:9 failed")
    assert stream.getvalue() == ""


def test_every_process_of_ours_logs_by_these_rules_and_none_by_its_own() -> None:
    sources = {
        path: path.read_text(encoding="utf-8")
        for folder in PACKAGES
        for path in (ROOT / folder).rglob("*.py")
    }
    processes = [path for path, text in sources.items() if "flags.parse(" in text]
    processes.append(ROOT / "registry" / "convert" / "__main__.py")
    assert len(processes) == len(SERVICES)
    for path in processes:
        assert sources[path].count("logs.configure(") == 1, path
    own = re.compile(r"\.setLevel\(|basicConfig\(|dictConfig\(|fileConfig\(")
    tuning = [path.relative_to(ROOT) for path, text in sources.items() if own.search(text)]
    assert tuning == [Path("service/logs.py")]
