"""The embedded Kafka: its commands and configuration, and the real thing through a crash."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from own_ports import own_ports
from own_servers import KafkaProcess, takes_connections

from headrace.errors import ServiceFailedError
from headrace.stack.kafka import (
    KAFKA_VERSION,
    KafkaFiles,
    KafkaNode,
    find_java,
    format_command,
    lay_out,
    prepare,
    remove_leftovers,
    server_command,
    server_properties,
    write_list,
)

FILES = KafkaFiles(Path("/java"), (Path("/a.jar"), Path("/b.jar")))


def properties(node: KafkaNode) -> dict[str, str]:
    lines = server_properties(node).splitlines()
    return dict(line.split("=", 1) for line in lines)


def test_a_node_listens_where_it_is_told_and_nowhere_else(tmp_path: Path) -> None:
    said = properties(KafkaNode(tmp_path, port=1234, controller_port=1235))
    assert said["listeners"] == "PLAINTEXT://127.0.0.1:1234,CONTROLLER://127.0.0.1:1235"
    assert said["advertised.listeners"] == "PLAINTEXT://127.0.0.1:1234"
    assert said["log.dirs"] == str(tmp_path / "data")


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0/"), min_size=1))
def test_java_reads_the_folder_that_was_meant(name: str) -> None:
    text = server_properties(KafkaNode(Path("/home") / name))
    assert text.isascii()
    (line,) = (line for line in text.splitlines() if line.startswith("log.dirs="))
    units = re.sub(
        r"\\\\|\\u(....)",
        lambda found: "\\" if found[1] is None else chr(int(found[1], 16)),
        line.removeprefix("log.dirs="),
    )
    meant = units.encode("utf-16-be", "surrogatepass").decode("utf-16-be")
    assert meant == str(Path("/home") / name / "data")


def test_topics_are_never_made_by_accident(tmp_path: Path) -> None:
    assert properties(KafkaNode(tmp_path))["auto.create.topics.enable"] == "false"


def test_the_server_runs_as_java_itself_with_a_bounded_heap(tmp_path: Path) -> None:
    command = server_command(FILES, KafkaNode(tmp_path, heap_megabytes=300))
    assert command[0] == "/java"
    assert "-Xmx300m" in command
    assert "/a.jar:/b.jar" in command
    assert command[-2:] == ["kafka.Kafka", str(tmp_path / "server.properties")]


def test_formatting_leaves_formatted_storage_alone(tmp_path: Path) -> None:
    assert "--ignore-formatted" in format_command(FILES, KafkaNode(tmp_path))


def test_no_cluster_id_can_be_taken_for_an_option(tmp_path: Path) -> None:
    command = format_command(FILES, KafkaNode(tmp_path))
    assert re.fullmatch("--cluster-id=[A-Za-z0-9_-]{22}", command[-3])


def test_laying_out_keeps_the_data(tmp_path: Path) -> None:
    node = KafkaNode(tmp_path / "kafka")
    lay_out(node)
    node.data_folder.mkdir()
    (node.data_folder / "log").write_text("kept")
    lay_out(node)
    assert (node.data_folder / "log").read_text() == "kept"
    assert node.properties_file.read_text() == server_properties(node)


def test_what_a_killed_node_had_unpacked_is_gone_at_the_next_start(tmp_path: Path) -> None:
    node = KafkaNode(tmp_path / "kafka")
    remove_leftovers(node)
    (node.scratch_folder / "liblz4-java-1.so").write_bytes(b"left")
    remove_leftovers(node)
    assert list(node.scratch_folder.iterdir()) == []
    assert f"-Djava.io.tmpdir={node.scratch_folder}" in server_command(FILES, node)


def test_jars_that_are_there_are_not_looked_for_again(tmp_path: Path) -> None:
    jar = tmp_path / "kafka.jar"
    jar.touch()
    (tmp_path / f"kafka-{KAFKA_VERSION}.json").write_text(json.dumps([str(jar)]))
    assert prepare(tmp_path) == KafkaFiles(find_java(), (jar,))


def test_jars_that_somebody_else_brought_are_found(tmp_path: Path) -> None:
    jar = tmp_path / "jars" / "kafka.jar"
    jar.parent.mkdir()
    jar.touch()
    write_list(tmp_path / "parts", [jar])
    assert prepare(tmp_path / "parts").jars == (jar,)


def test_nobody_at_the_port_is_no_answer(tmp_path: Path) -> None:
    assert not takes_connections(KafkaNode(tmp_path, port=1))


@pytest.mark.real
def test_a_port_that_is_taken_is_said_at_once(
    kafka: KafkaProcess, kafka_files: KafkaFiles, tmp_path: Path
) -> None:
    second = KafkaProcess(kafka_files, KafkaNode(tmp_path, port=kafka.node.port))
    with pytest.raises(ServiceFailedError, match="something else listens"):
        second.start()


@pytest.mark.real
def test_a_kafka_that_cannot_start_says_why(
    kafka: KafkaProcess, kafka_files: KafkaFiles, tmp_path: Path
) -> None:
    (port,) = own_ports(1)
    taken = KafkaNode(tmp_path, port=port, controller_port=kafka.node.controller_port)
    with pytest.raises(ServiceFailedError, match=r"(?s)did not start: .*in use"):
        KafkaProcess(kafka_files, taken).start()


@pytest.mark.real
def test_data_survives_a_crash(kafka: KafkaProcess) -> None:
    before = (kafka.node.data_folder / "meta.properties").read_text()
    kafka.kill9()
    assert not takes_connections(kafka.node)
    kafka.start()
    assert (kafka.node.data_folder / "meta.properties").read_text() == before


@pytest.mark.real
@pytest.mark.parametrize("name", ["Jürgen Müller 日本語", "back\\slash x=#y", "l" * 200])
def test_a_kafka_keeps_its_data_in_any_persons_home(
    kafka_files: KafkaFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    for variable in ("LC_ALL", "LC_CTYPE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("LANG", "C")
    port, controller_port = own_ports(2)
    node = KafkaNode(tmp_path / name, port=port, controller_port=controller_port)
    started = KafkaProcess(kafka_files, node)
    started.start()
    try:
        assert (node.data_folder / "meta.properties").is_file()
    finally:
        started.stop()
