"""The images are of the same parts, and start them in the same way, as the local stack."""

import ast
import hashlib
import json
import os
import re
import shlex
import stat
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from http_server import Answer, Request, http_server
from loaded_script import loaded

from contracts import telemetry_off
from headrace.stack import kafka, mlflow, triton
from headrace.stack.kafka import KafkaNode
from headrace.stack.mlflow import LocalMlflowServer
from headrace.stack.settings import EVERYWHERE, Ports, StackSettings
from headrace.stack.triton import TritonFiles, TritonServer
from service.mutual_tls import server_flags

ROOT = Path(__file__).parent.parent.parent
DOCKER = ROOT / "docker"
DOCKERFILE = (DOCKER / "Dockerfile").read_text(encoding="utf-8")
BUILT_IN_STAGES = {"python", "init", "installer", "code"}


def stages() -> dict[str, str]:
    """The instructions of each stage, by its name."""
    parts = re.split(r"^FROM (\S+) AS (\S+)\n", DOCKERFILE, flags=re.MULTILINE)[1:]
    return {parts[i + 1]: parts[i + 2] for i in range(0, len(parts), 3)}


def images() -> list[str]:
    names = [name for name in stages() if not name.endswith(("-packages", "-files"))]
    return sorted(set(names) - BUILT_IN_STAGES)


def test_the_script_builds_the_stages_that_are_images() -> None:
    listed = re.findall(
        r"^(?:ALL|OPTIONAL)=\((.*)\)$", (DOCKER / "build").read_text(), re.MULTILINE
    )
    assert len(listed) == 2
    assert sorted(" ".join(listed).split()) == images()


def build(*images: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """What ``docker/build`` says, with a builder that only says what it would build."""
    env = {"PATH": "/usr/bin:/bin", "IMAGE_BUILD": "echo built", "IMAGE_TAG": "7", **environment}
    return subprocess.run(
        [DOCKER / "build", *images],
        env=env, capture_output=True, text=True, check=False, timeout=30,
    )  # fmt: skip


def test_an_unknown_image_is_refused_with_those_that_there_are() -> None:
    done = build("gateways", IMAGE_BUILD="false")
    assert done.returncode == 1
    assert "no image gateways" in done.stderr
    assert "gateway controller" in done.stderr


def test_each_image_gets_the_builder_the_tag_and_its_target() -> None:
    done = build(
        "stats", "triton-gpu", IMAGE_REGISTRY="example.org/acme/", IMAGE_LOAD="echo loaded"
    )
    stats, gpu = "example.org/acme/headrace-stats:7", "example.org/acme/headrace-triton-gpu:7"
    assert done.stdout.splitlines() == [
        stats,
        f"built -t {stats} -f docker/Dockerfile --target stats .",
        f"loaded {stats}",
        gpu,
        f"built -t {gpu} -f docker/triton/gpu.Dockerfile .",
        f"loaded {gpu}",
    ]


@pytest.mark.parametrize("image", images())
def test_an_image_runs_as_nobody_special(image: str) -> None:
    assert re.findall(r"^USER (\S+)$", stages()[image], re.MULTILINE) == ["10001:10001"]


@pytest.mark.parametrize("image", images())
def test_an_image_works_as_any_user_of_the_group_0(image: str) -> None:
    """As OpenShift assigns them: without a name, and in the root group."""
    owned = re.findall(r"chown (.*?)( \\\n && chmod g=u /data)?\n", stages()[image])
    assert {(words, bool(shared)) for words, shared in owned} <= {("10001:0 /data", True)}


def test_a_user_without_a_name_has_one_in_the_environment() -> None:
    """Python's ``getpass.getuser``, which libraries call, fails where there is neither."""
    (told,) = re.findall(r"^ENV (.*?[^\\])$", stages()["python"], re.MULTILINE | re.DOTALL)
    assert "USER=headrace" in shlex.split(told.replace("\\\n", " "))


@pytest.mark.parametrize("image", images())
def test_an_image_can_be_told_to_end_while_it_starts(image: str) -> None:
    """A container's first process ignores what it has no handler for."""
    assert re.findall(r'^ENTRYPOINT \["tini", "--", ', stages()[image], re.MULTILINE)
    assert "COPY --from=init /usr/bin/tini /usr/bin/tini" in stages()[image]


@pytest.mark.parametrize("recipe", ["triton/gpu.Dockerfile", "object-store.Dockerfile"])
def test_images_that_are_not_always_built_run_as_nobody_special_too(recipe: str) -> None:
    text = (DOCKER / recipe).read_text(encoding="utf-8")
    assert re.findall(r"^USER (\S+)$", text, re.MULTILINE) == ["10001:10001"]


def test_the_image_of_the_s3_server_is_the_program_alone(tmp_path: Path) -> None:
    program = tmp_path / "object-store" / "versitygw"
    program.parent.mkdir()
    program.touch()
    done = build("object-store", HEADRACE_CACHE=str(tmp_path))
    name, built = done.stdout.splitlines()[-2:]
    assert name == "headrace-object-store:7"
    assert built == f"built -t {name} -f docker/object-store.Dockerfile {program.parent}"


def test_packages_come_from_locks_by_their_hashes_alone() -> None:
    installs = [line for line in DOCKERFILE.splitlines() if re.search(r"\bpip install\b", line)]
    ours = [line for line in installs if "--require-hashes" not in line]
    assert all("--no-deps" in line for line in ours)  # Headrace itself
    assert len(ours) == 1
    assert "--require-hashes" in (DOCKER / "install-lock").read_text()
    for lock in re.findall(r"locks/images/(\S+\.txt)", DOCKERFILE):
        assert "--hash=sha256:" in (ROOT / "locks" / "images" / lock).read_text()


def test_torch_is_in_the_conversion_image_alone() -> None:
    with_torch = [
        lock.stem
        for lock in (ROOT / "locks" / "images").glob("*.txt")
        if re.search(r"^torch==", lock.read_text(), re.MULTILINE)
    ]
    assert sorted(with_torch) == ["conversion", "triton-gpu"]


GPU_RECIPE = (DOCKER / "triton" / "gpu.Dockerfile").read_text(encoding="utf-8")


def pins(lock: str) -> dict[str, str]:
    """The versions of a lock, by package; of one with several the last."""
    text = (ROOT / "locks" / lock).read_text(encoding="utf-8")
    return dict(re.findall(r"^([\w.-]+)==([\w.]+)", text, re.MULTILINE))


def test_the_image_for_gpus_has_the_torch_by_which_packages_were_proved() -> None:
    gpu, export = pins("images/triton-gpu.txt"), pins("export.txt")
    for name in ("torch", "transformers", "tokenizers", "safetensors", "numpy"):
        assert gpu[name] == export[name], name
    assert gpu["onnxruntime-gpu"] == pins("images/triton.txt")["onnxruntime"]


def test_the_image_for_gpus_takes_packages_by_their_hashes_for_the_python_of_tritons_stub() -> None:
    assert "COPY locks/images/triton-gpu.txt" in GPU_RECIPE
    (install,) = re.findall(r"pip --python .*?\n && ", GPU_RECIPE, re.DOTALL)
    assert {"--require-hashes", "--no-deps"} <= set(install.split())
    assert "sys.version_info[:2] == (3, 12)" in GPU_RECIPE
    (path,) = re.findall(r"PATH=(\S+)", GPU_RECIPE)
    assert path.split(":")[0] == "/opt/headrace/bin"


def test_the_image_for_gpus_is_of_the_release_that_the_documentation_and_releases_name() -> None:
    (release,) = re.findall(r"^ARG TRITON_IMAGE=(\S+)$", GPU_RECIPE, re.MULTILINE)
    assert re.fullmatch(r"nvcr\.io/nvidia/tritonserver:\d\d\.\d\d-py3", release)
    assert f"TRITON_IMAGE={release}" in (DOCKER / "bases").read_text()
    assert release in (ROOT / "docs" / "images.md").read_text()


@pytest.mark.parametrize("recipe", [GPU_RECIPE, stages()["python"]])
def test_no_library_in_an_image_calls_its_maker(recipe: str) -> None:
    joined = recipe.replace("\\\n", " ")
    said = {
        word for line in re.findall(r"^ENV (.*)$", joined, re.MULTILINE) for word in line.split()
    }
    assert {f"{name}={value}" for name, value in telemetry_off.VARIABLES.items()} <= said


def test_every_image_with_libraries_in_python_is_of_the_stage_that_has_these_variables() -> None:
    pairs = re.findall(r"^FROM (\S+) AS (\S+)$", DOCKERFILE, re.MULTILINE)
    base_of = {stage: base for base, stage in pairs}
    with_python = [name for name in images() if "/opt/headrace" in stages()[name]]
    assert {base_of[name] for name in with_python} == {"python"}


def test_the_context_holds_what_the_wheel_is_made_of() -> None:
    wanted = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if "!" in line}
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    assert set(wheel["targets"]["wheel"]["packages"]) <= wanted
    hook = re.search(r"^FILES = (\{[^}]*\})", (ROOT / "hatch_build.py").read_text(), re.MULTILINE)
    assert hook is not None
    for source in ast.literal_eval(hook[1]):
        assert any(source == path or source.startswith(f"{path}/") for path in wanted), source


def test_triton_starts_with_the_flags_of_the_local_stack() -> None:
    script = (DOCKER / "triton" / "start").read_text()
    command = re.search(r"^exec (.*?)\"\$@\"$", script, re.MULTILINE | re.DOTALL)
    assert command is not None
    started = shlex.split(command[1].replace("\\\n", " "))
    server = TritonServer(Path("/models"))
    local = triton.command(TritonFiles(Path("/unpacked")), server)
    # Ports and addresses are Triton's own defaults in a pod, and GPUs are measured there.
    default = ("--http-address", "--http-port", "--grpc-address", "--grpc-port", "--metrics-",
               "--allow-gpu-metrics")  # fmt: skip
    folder = ("--model-repository", "--backend-directory")
    prefix = server.shared_memory_prefix

    def comparable(words: list[str]) -> list[str]:
        kept = [word for word in words[1:] if not word.startswith((*default, *folder))]
        return [
            word.replace(prefix, "PREFIX").replace("headrace_triton_", "PREFIX") for word in kept
        ]

    assert comparable(started) == comparable(local)
    assert "/dev/shm/headrace_triton_*" in script


def test_triton_makes_a_new_key_at_each_start_that_restricts_what_the_local_one_does(
    tmp_path: Path,
) -> None:
    script = (DOCKER / "triton" / "start").read_text()
    program = tmp_path / "tritonserver"
    program.write_text('#!/bin/sh\nfor word in "$@"; do echo "$word"; done\n')
    program.chmod(0o755)
    start = tmp_path / "start"
    start.write_text(script.replace("/opt/tritonserver/bin/tritonserver", str(program)))
    file = tmp_path / "key"
    environment = {
        "PATH": os.environ["PATH"],
        "TRITON_MODELS": str(tmp_path / "models"),
        "TRITON_CONTROL_KEY_FILE": str(file),
    }
    keys = set()
    for _ in range(2):
        told = subprocess.run(
            ["/bin/sh", start, "--mine"],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        words, key = told.stdout.splitlines(), file.read_text()
        keys.add(key)
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert set(triton.restriction(key)) <= set(words)
        assert words[-1] == "--mine"
    assert len(keys) == 2
    assert {len(bytes.fromhex(key)) for key in keys} == {32}


def test_triton_starts_with_the_tls_of_the_local_one_where_it_is_given_a_folder(
    tmp_path: Path,
) -> None:
    program = tmp_path / "tritonserver"
    program.write_text('#!/bin/sh\nfor word in "$@"; do echo "$word"; done\n')
    program.chmod(0o755)
    start = tmp_path / "start"
    script = (DOCKER / "triton" / "start").read_text()
    start.write_text(script.replace("/opt/tritonserver/bin/tritonserver", str(program)))
    environment = {
        "PATH": os.environ["PATH"],
        "TRITON_MODELS": str(tmp_path / "models"),
        "TRITON_TLS_FOLDER": "/certificates",
    }
    told = subprocess.run(
        ["/bin/sh", start], env=environment, capture_output=True, text=True, check=True
    )

    def comparable(words: list[str]) -> set[str]:
        return {re.sub("=[0-9a-f]{64}$", "=KEY", word) for word in words}

    local = comparable(server_flags(Path("/certificates")))
    assert local <= comparable(told.stdout.splitlines())
    assert "--http-restricted-api=inference:headrace-key=KEY" in local


def test_kafka_runs_on_the_settings_of_the_local_stack() -> None:
    where = {"listeners", "advertised.listeners", "controller.quorum.voters", "log.dirs"}
    set_by_start = {"log.retention.hours"}

    def read(text: str) -> dict[str, str]:
        lines = [line for line in text.splitlines() if line and not line.startswith("#")]
        settings = dict(line.split("=", 1) for line in lines)
        return {name: value for name, value in settings.items() if name not in where | set_by_start}

    local = kafka.server_properties(KafkaNode(Path("/data")))
    assert read((DOCKER / "kafka" / "server.properties").read_text()) == read(local)
    node = KafkaNode(Path("/data"))
    start = (DOCKER / "kafka" / "start").read_text()
    assert f"KAFKA_RETENTION_HOURS:-{node.retention_hours}" in start
    assert f"KAFKA_HEAP_MEGABYTES:-{node.heap_megabytes}" in start


def test_kafkas_jars_are_those_of_the_local_stack() -> None:
    jars = (DOCKER / "kafka" / "jars.txt").read_text().split()[1::2]
    assert set(kafka.COORDINATES.split("+")) <= set(jars)


@pytest.mark.real
def test_every_jar_is_byte_for_byte_that_of_the_local_stack(
    kafka_files: kafka.KafkaFiles,
) -> None:
    file_of = loaded(DOCKER / "kafka" / "jars.py").file_of
    lines = (DOCKER / "kafka" / "jars.txt").read_text().splitlines()
    locked = {file_of(name): digest for digest, name in map(str.split, lines)}
    used = {jar.name: hashlib.sha256(jar.read_bytes()).hexdigest() for jar in kafka_files.jars}
    assert locked == used


def test_the_jars_lock_follows_from_jgos() -> None:
    jgo = '[[dependencies]]\ngroupId = "a.b"\nartifactId = "c"\nversion = "1"\nsha256 = "00"\n'
    assert loaded(DOCKER / "kafka" / "jars.py").locked(jgo) == "00  a.b:c:1\n"


def test_mlflow_is_told_what_the_local_stack_tells_it() -> None:
    block = re.search(r"^ENV (.*?[^\\])$", stages()["mlflow"], re.MULTILINE | re.DOTALL)
    assert block is not None
    told = dict(word.split("=", 1) for word in shlex.split(block[1].replace("\\\n", " ")))
    inherited = dict(telemetry_off.VARIABLES)  # of the stage that it is built on
    assert inherited | told == mlflow.environment(LocalMlflowServer(Path("/data")), {})
    command = re.search(r"^CMD (\[.*\])$", stages()["mlflow"], re.MULTILINE)
    assert command is not None
    local = mlflow.command(LocalMlflowServer(Path("/data"), port=5000, host="0.0.0.0"))
    for word in ("uvicorn", "mlflow.server.fastapi_app:app"):
        assert word in local
        assert word in command[1]


def test_mlflow_looks_at_its_volume_before_it_starts() -> None:
    entry = re.search(r"^ENTRYPOINT (\[.*\])$", stages()["mlflow"], re.MULTILINE)
    assert entry is not None
    assert json.loads(entry[1]) == ["tini", "--", "python", "-P", "/opt/mlflow/start.py"]
    assert "COPY docker/mlflow/start.py /opt/mlflow/start.py\n" in stages()["mlflow"]


def test_the_image_with_all_parts_exposes_what_listens_for_others() -> None:
    stage = stages()["all-in-one"]
    command = re.search(r"^CMD (\[.*\])$", stage, re.MULTILINE)
    assert command is not None
    assert json.loads(command[1]) == ["up", f"--listen={EVERYWHERE}"]
    settings = StackSettings(home=Path("/h"), cache=Path("/c"), listen=EVERYWHERE)
    needed = settings.needed_ports()
    opened = {port for name, port in needed.items() if settings.listens_on(name) == EVERYWHERE}
    (exposed,) = re.findall(r"^EXPOSE (.*)$", stage, re.MULTILINE)
    assert {int(port) for port in exposed.split()} == opened
    page = (ROOT / "docs" / "images.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([\d, ]+) \| ", page, re.MULTILINE)
    assert {int(port) for row in rows for port in row.split(",")} == opened


def test_the_image_with_all_parts_is_well_as_long_as_its_gateway_is_ready() -> None:
    check = re.search(r"^HEALTHCHECK .* CMD (\[.*\])$", stages()["all-in-one"], re.MULTILINE)
    assert check is not None
    *words, program = json.loads(check[1])
    well = [True]
    with http_server(lambda asked: answer_of(asked, ready=well[0])) as url:
        port = str(Ports().gateway_operations)
        assert program.count(port) == 1
        asking = program.replace(port, url.rpartition(":")[2]).replace("timeout=5", "timeout=300")
        here = [sys.executable, *words[1:], asking]
        assert subprocess.run(here, check=False).returncode == 0
        well[0] = False
        assert subprocess.run(here, check=False).returncode == 1


def answer_of(asked: Request, *, ready: bool) -> Answer:
    if asked.path != "/readyz":
        return Answer(404)
    return Answer(200 if ready else 503)


def test_the_image_with_all_parts_writes_to_one_volume() -> None:
    block = re.search(r"^ENV (.*?[^\\])$", stages()["all-in-one"], re.MULTILINE | re.DOTALL)
    assert block is not None
    told = dict(word.split("=", 1) for word in shlex.split(block[1].replace("\\\n", " ")))
    only_read = told.pop("HEADRACE_PARTS")
    assert all(path.startswith("/data/") for path in told.values())
    assert f"provision triton --cache {only_read}" in stages()["all-in-one-files"]


def test_an_image_holds_what_its_extras_ask_for_and_not_the_command_lines_packages() -> None:
    requirements = loaded(DOCKER / "requirements.py").requirements
    known = {
        "service": ["numpy>=1"], "s3": ["s3fs"], "cli": ["typer"],
        "both": ["headrace[service]", "onnx", "headrace[s3,service]"],
    }  # fmt: skip
    assert requirements(["both"], known) == ("numpy>=1", "onnx", "s3fs")
    with pytest.raises(KeyError):
        requirements(["none"], known)
    locked = (ROOT / "locks" / "images" / "gateway.txt").read_text(encoding="utf-8")
    assert not re.search(r"^(typer|rich|kubernetes)==", locked, re.MULTILINE)
    assert re.search(r"^numpy==", locked, re.MULTILINE)


# Imports a module where only what a lock names can be imported, beside our own packages.
_ONLY_LOCKED = """
import importlib, json, re, sys
from importlib.metadata import packages_distributions
locked = {name.replace("_", "-").lower() for name in json.loads(sys.argv[2])}
absent = {
    module for module, owners in packages_distributions().items()
    if not any(re.sub("[-_.]+", "-", owner).lower() in locked for owner in owners)
}
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in absent:
            raise ModuleNotFoundError(f"the image has no {name}")
sys.meta_path.insert(0, Absent())
importlib.import_module(sys.argv[1])
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("image", "module"),
    [
        ("gateway", "gateway.main"),
        ("controller", "controller.main"),
        ("controller", "registry.loader_main"),
        ("stats", "stats.fold_main"),
        ("stats", "stats.evaluate_main"),
    ],
)
def test_a_service_imports_only_what_its_image_has(image: str, module: str) -> None:
    lock = (ROOT / "locks" / "images" / f"{image}.txt").read_text(encoding="utf-8")
    names = ["headrace", *re.findall(r"^([A-Za-z0-9._-]+)==", lock, re.MULTILINE)]
    done = subprocess.run(
        [sys.executable, "-P", "-c", _ONLY_LOCKED, module, json.dumps(names)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
