"""How late the gateway's event loop comes under each attack by itself, over TLS: for the record.

The p99 of a caller (``test_hostile_callers_at_length``) says that something holds the loop, and
moves by a quarter from run to run. This says what does: each kind of attack has the gateway for
``HEADRACE_SOAK_SECONDS`` (10 if nothing is said), with hardly a pause, and nobody else asks.
"""

import asyncio
import hashlib
import json
import os
import random
import signal
import ssl
import statistics
import time
from pathlib import Path
from typing import Any

import certificates
import probed_gateway
import pytest
from gateway_process import gateway_at, lay_out_packages, put
from gateway_world import endpoint_of, of_three_tasks
from hostile_callers import ATTACKED, ATTACKS, BESIDE, QUIET, Attack, Plan
from soak_record import record
from waiting import until

pytestmark = [pytest.mark.soak, pytest.mark.real, pytest.mark.timeout(7200)]

SECONDS = float(os.environ.get("HEADRACE_SOAK_SECONDS", "10"))
PAUSE_SECONDS = 0.05
ATTACKERS = ("mallory", "trudy", "eve")
TIMED_APART = {"slow_bodies"}  # waits more than it sends


def told(file: Path, pid: int) -> list[float]:
    """How late each tick was since the last call, milliseconds."""
    file.unlink(missing_ok=True)
    os.kill(pid, signal.SIGUSR1)
    until("the gateway told", 60, file.exists)
    found: list[float] = json.loads(file.read_text(encoding="utf-8"))
    return found


def figures_of(late: list[float], attacks: int) -> dict[str, float]:
    """Of the ticks of one attack."""
    at = statistics.quantiles(late, n=1000)
    return {
        "attacks": attacks,
        "ticks": len(late),
        "p50_milliseconds": round(at[499], 2),
        "p99_milliseconds": round(at[989], 2),
        "p99.9_milliseconds": round(at[998], 2),
        "most_milliseconds": round(max(late), 1),
        "share_over_a_millisecond": round(sum(each > 1 for each in late) / len(late), 4),
    }


async def test_how_late_the_event_loop_comes_under_each_attack(tmp_path: Path) -> None:
    for ref in lay_out_packages(tmp_path, *of_three_tasks()):
        put(tmp_path, endpoint_of(ref, name=ref.model))
    certificate, secret = certificates.write(tmp_path, "gateway")
    keys, file = tmp_path / "keys", tmp_path / "late.json"
    lines = [
        json.dumps({"name": name, "sha256": hashlib.sha256(name.encode()).hexdigest()})
        for name in ATTACKERS
    ]
    keys.write_text("\n".join(lines) + "\n", encoding="utf-8")
    flags = {
        "keys-file": keys, "tls-certificate-file": certificate, "tls-key-file": secret,
    }  # fmt: skip
    given = [f"--{name}={value}" for name, value in flags.items()]
    program = (probed_gateway.__file__, str(file), "--triton-grpc", "echo")
    tls = ssl.create_default_context(cafile=str(certificate))
    found: dict[str, dict[str, float]] = {}
    async with gateway_at(tmp_path, *given, program=program) as run:
        ports: Any = await run.line("gateway listens")
        log = asyncio.create_task(run.drain())
        plan = Plan(
            http=dict.fromkeys((ATTACKED, BESIDE), ports["http_port"]),
            grpc=dict.fromkeys((ATTACKED, BESIDE), ports["grpc_port"]),
            certificate=str(certificate), keys=list(ATTACKERS), seconds=1e9, turn_seconds=1e9,
            seed=1,
        )  # fmt: skip
        pid = run.process.pid
        await asyncio.sleep(min(5.0, SECONDS))  # what is made once is made
        await asyncio.to_thread(told, file, pid)
        await asyncio.sleep(SECONDS)
        found[QUIET] = figures_of(await asyncio.to_thread(told, file, pid), 0)
        for kind in ATTACKS:
            if kind.__name__ in TIMED_APART:
                continue
            chance = random.Random(f"1 {kind.__name__}")
            for seconds in (SECONDS / 3, SECONDS):  # what is made once by this kind is made first
                began = time.monotonic()
                attack, end = Attack(plan, began, tls), began + seconds

                def repeat(
                    attack: Attack = attack, end: float = end, chance: random.Random = chance,
                    kind: Any = kind,
                ) -> None:  # fmt: skip
                    while time.monotonic() < end:
                        kind(attack, chance)
                        time.sleep(PAUSE_SECONDS)

                await asyncio.to_thread(told, file, pid)
                await asyncio.to_thread(repeat)
                late = await asyncio.to_thread(told, file, pid)
            found[kind.__name__] = figures_of(late, sum(attack.done.values()))
        alive = run.process.returncode is None
        log.cancel()
    figures = {"seconds_each": SECONDS, "seconds_between_attacks": PAUSE_SECONDS, "late": found}
    record("loop-turns", figures)
    assert alive
    assert [each for each in run.logged if each["level"] == "error"] == []
    assert all(each["ticks"] > 100 * SECONDS for each in found.values()), found
