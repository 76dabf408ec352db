"""``headrace up``: shows the steps, then what to try."""

import asyncio
import shlex
import shutil
import sys
from collections.abc import Mapping
from ipaddress import IPv4Address
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from contracts.device_words import in_words
from headrace.cli.options import HOME, absolute
from headrace.commands.steps import Steps
from headrace.stack import example
from headrace.stack.settings import StackSettings
from headrace.stack.up import RunningStack, Up


def run(settings: StackSettings, environment: Mapping[str, str]) -> None:
    """Runs the stack until Ctrl-C; its processes inherit of ``environment`` what may reach them."""
    console = Console()
    steps = Steps(console)
    console.print(f"Headrace, in {escape(str(settings.home))}", highlight=False)

    def announce(started: RunningStack) -> None:
        steps.quiet()
        for line in invitation(started):
            console.print(line, markup=False, highlight=False, soft_wrap=True)

    with steps.live():
        asyncio.run(Up(settings, environment, steps, announce).run())
    console.print("Stopped.", highlight=False)


def invitation(started: RunningStack) -> list[str]:
    """What a user sees once the stack answers: addresses, and commands that work as printed."""
    settings = started.settings
    lines = [
        "",
        f"Up in {started.seconds:.1f} s. Ctrl-C stops it; what it stores is kept.",
        "",
        *(
            f"  {each.name:<9} {each.url}   (gRPC {each.grpc}, docs {each.operations_url}/docs)"
            for each in settings.gateway_replicas
        ),
        f"  MLflow    {settings.mlflow_url}",
        f"  page      {settings.stats_url}/ui/   (statistics, drift, rollouts; /metrics beside it)",
        f"  Kafka     {settings.kafka_address}",
        *_tritons(started),
        f"  logs      {settings.home / 'logs'}",
        *_open_to_others(settings),
    ]
    for name, why in started.unready.items():
        lines += ["", f"Not answering yet: {name} ({why}). Watch it: headrace status --watch"]
    if started.serving:
        name = example.ENDPOINT if example.ENDPOINT in started.serving else started.serving[0]
        body = f'{{"inputs": "{example.TEXT}"}}'
        address = f"{settings.gateway_url}/endpoints/{name}"
        curl = ["curl", "-s", address, "-H", "content-type: application/json", "-d", body]
        lines += ["", "Try it:", f"  {shlex.join(curl)}"]
    if settings.example:
        lines += second_version(settings)
    lines += [
        "",
        "Register a model of your own, with the standard MLflow client:",
        f"  export MLFLOW_TRACKING_URI={settings.mlflow_url}",
        "",
    ]
    return lines


def _open_to_others(settings: StackSettings) -> list[str]:
    """What whoever listens on more than loopback should know."""
    if IPv4Address(settings.listen).is_loopback:
        return []
    who = "Gateways ask callers for a key" if settings.keys_file else "Nobody is asked for a key"
    return [
        "",
        f"Gateways, MLflow and the page listen on {settings.listen}. {who}; MLflow and the page",
        "ask nobody who they are: keep these ports from people whom you do not trust.",
    ]


def _tritons(started: RunningStack) -> list[str]:
    """Where each listens, and what it computes with."""
    settings = started.settings
    names = [each.name.capitalize() for each in settings.triton_replicas] or ["Triton"]
    addresses = [each.triton_grpc for each in settings.loader_replicas]
    devices = started.devices or (None,) * len(names)
    return [
        f"  {name:<9} {address} (gRPC)" + (f", {words}" if (words := in_words(device)) else "")
        for name, address, device in zip(names, addresses, devices, strict=True)
    ]


def second_version(settings: StackSettings) -> list[str]:
    """How to register another version of the example, and what becomes of it.

    It is a rollout, and one without traffic stays where it is: nobody should wait for it in vain.
    """
    name, folder = example.ENDPOINT, example.script().parent
    register = example.command(settings.mlflow_url, "--variant", "v2")
    looser = ["apply", "-f", str(folder / "endpoint.yaml")]
    texts = str(folder / "texts" / "replay.txt")
    replay = ["replay", texts, "--endpoint", name, "--rate", "30", "--callers", "300"]
    status = ["rollout", "status", name, "--watch"]
    promote = ["rollout", "promote", name, "--full"]
    return [
        "",
        "Register a second version:",
        f"  {shlex.join(register)}",
        "It is compared with the first one on traffic, and gets callers step by step. To see that",
        "in minutes, loosen its checks, send traffic and watch; or give it all callers at once:",
        *(f"  {_ours(settings, words)}" for words in (looser, replay, status, promote)),
    ]


def _ours(settings: StackSettings, words: list[str]) -> str:
    """A command of ours on this stack, for any shell."""
    program = (
        "headrace" if shutil.which("headrace") else str(Path(sys.executable).with_name("headrace"))
    )
    home = [] if settings.home == absolute(HOME) else ["--home", str(settings.home)]
    return shlex.join([program, *words, *home])
