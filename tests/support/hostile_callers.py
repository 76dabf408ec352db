"""A program: callers who mean harm, with valid keys and without, over TLS, at bounded rates.

``python -P -m hostile_callers PLAN`` with ``tests/support`` on the path; PLAN is JSON of ``Plan``'s
fields. It is a process of its own, so that it never holds the interpreter of whoever measures.
Its last line is JSON: what was done, and the statuses that were answered.

They attack in turns: they pause, attack one gateway, and then another gateway beside it, which
takes as much of the machine's processors. So it can be told what an attack does to other callers of
the same gateway, and what to everybody on the machine, whatever else changes there meanwhile.
"""

import gzip
import json
import os
import random
import socket
import ssl
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import grpc
from gateway_world import text_of
from raw_grpc import INFER
from worst_bodies import GRPC, WORST

LARGEST = 8 * 1024 * 1024 - 1024
SMALLEST = 256
NICENESS = 10  # whoever measures and the gateway go first
# Seconds between two attacks of a kind, whatever an attack took; docs say so beside the figures.
PAUSES = {
    "worst_bodies": 0.5,
    "worst_bodies_without_a_key": 0.5,
    "worst_messages": 0.5,
    "broken_json": 0.05,
    "gzip_bombs": 1.0,
    "slow_bodies": 0.5,
    "answers_not_taken": 2.0,
    "floods": 1.0,
}
ERRORS = (OSError, TimeoutError)
# What they do in each turn, round after round.
QUIET, ATTACKED, BESIDE = "quiet", "attacked", "beside"
ROUND = (QUIET, ATTACKED, BESIDE, ATTACKED, ATTACKED)


def turn_at(seconds: float, turn_seconds: float) -> str:
    """What they do so long after they began."""
    return ROUND[int(seconds // turn_seconds) % len(ROUND)]


@dataclass(frozen=True)
class Plan:
    """Whom they attack, with what keys, and for how long.

    Attributes:
        http: ports, by what they do: ``ATTACKED`` and ``BESIDE``.
        grpc: the same.
        certificate: path of the one to trust, which both gateways have.
        keys: valid ones.
        seconds: after the first line, which says that they begin, and when by ``monotonic``.
        turn_seconds: of each turn of a round.
    """

    http: dict[str, int]
    grpc: dict[str, int]
    certificate: str
    keys: list[str]
    seconds: float
    turn_seconds: float
    seed: int


@dataclass
class Attack:
    """What all of them share."""

    plan: Plan
    began: float
    tls: ssl.SSLContext
    done: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def goes_on(self) -> bool:
        return time.monotonic() < self.began + self.plan.seconds

    @property
    def turn(self) -> str:
        """What they do now."""
        return turn_at(time.monotonic() - self.began, self.plan.turn_seconds)

    def port(self, ports: dict[str, int]) -> int:
        """Of the gateway that is attacked; of what began before a pause, the last one."""
        return ports[BESIDE if self.turn == BESIDE else ATTACKED]

    def note(self, what: str, status: str = "") -> None:
        """Counts one attack and what was answered."""
        with self.lock:
            self.done[what] += 1
            if status:
                self.statuses[status] += 1

    @contextmanager
    def connected(self) -> Iterator[ssl.SSLSocket]:
        plain = socket.create_connection(("127.0.0.1", self.port(self.plan.http)), 20)
        with self.tls.wrap_socket(plain, server_hostname="127.0.0.1") as connection:
            yield connection

    def post(self, path: str, size: int, key: str | None, **headers: str) -> bytes:
        """The head of a POST."""
        if key is not None:
            headers["authorization"] = f"Bearer {key}"
        headers |= {"host": "x", "content-type": "application/json", "content-length": str(size)}
        lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        return "\r\n".join([f"POST {path} HTTP/1.1", *lines, "", ""]).encode()

    def ask(self, what: str, path: str, body: bytes, key: str | None, **headers: str) -> None:
        """Sends one whole request on a connection of its own, and counts its status."""
        status = "closed"
        with suppress(*ERRORS), self.connected() as connection:
            with suppress(*ERRORS):  # refused before it has been sent
                connection.sendall(self.post(path, len(body), key, **headers) + body)
            status = connection.recv(65_536)[9:12].decode("latin-1") or "closed"
        self.note(what, status)


def some_size(chance: random.Random) -> int:
    """As many small ones as large."""
    return int(SMALLEST * (LARGEST / SMALLEST) ** chance.random())


def worst_bodies(attack: Attack, chance: random.Random) -> None:
    worst = chance.choice([each for each in WORST if each.path != GRPC])
    key = chance.choice(attack.plan.keys)
    body = worst.make(some_size(chance))
    attack.ask("worst bodies", worst.path, body, key, **worst.headers)


def worst_bodies_without_a_key(attack: Attack, chance: random.Random) -> None:
    worst = chance.choice([each for each in WORST if each.path != GRPC])
    key = chance.choice([None, "no key of this gateway"])
    body = worst.make(some_size(chance))
    attack.ask("worst bodies without a key", worst.path, body, key, **worst.headers)


def worst_messages(attack: Attack, chance: random.Random) -> None:
    worst = chance.choice([each for each in WORST if each.path == GRPC])
    key = chance.choice([*attack.plan.keys, "no key of this gateway"])
    trusted = Path(attack.plan.certificate).read_bytes()
    credentials = grpc.ssl_channel_credentials(trusted)
    status = "OK"
    address = f"127.0.0.1:{attack.port(attack.plan.grpc)}"
    with grpc.secure_channel(address, credentials) as channel:
        call = channel.unary_unary(INFER)  # no serialiser: the bytes as they are
        try:
            metadata = [("authorization", f"Bearer {key}")]
            call(worst.make(some_size(chance)), metadata=metadata, timeout=20)
        except grpc.RpcError as error:
            status = error.code().name
    attack.note("worst messages", status)


def broken_json(attack: Attack, chance: random.Random) -> None:
    body = bytearray(b'{"inputs": ["%s"], "parameters": {"top_k": 1}}' % text_of(3).encode())
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(len(body))
        body[at : at + chance.randrange(4)] = chance.randbytes(chance.randrange(4))
    path = chance.choice(WORST[: len(WORST) - 8]).path
    attack.ask("broken JSON", path, bytes(body), chance.choice(attack.plan.keys))


def gzip_bombs(attack: Attack, chance: random.Random) -> None:
    """Many members that are empty, or one that becomes a thousand times itself."""
    body = gzip.compress(b"") * (some_size(chance) // 20 + 1)
    if chance.random() < 0.5:
        body = gzip.compress(b'{"inputs":"' + b"a" * (64 << 20), 1)
    key = chance.choice(attack.plan.keys)
    attack.ask("gzip bombs", "/endpoints/sentiment", body, key, content_encoding="gzip")


def slow_bodies(attack: Attack, chance: random.Random) -> None:
    """Bodies that come a byte at a time, or stop a byte before their end."""
    body = b'{"inputs": "%s"}' % text_of(3).encode()
    with ExitStack() as held:
        connections = []
        for _ in range(8):
            with suppress(*ERRORS):
                connection = held.enter_context(attack.connected())
                size = chance.choice([len(body), LARGEST])
                key = chance.choice(attack.plan.keys)
                head = attack.post("/endpoints/sentiment", size, key)
                sent = b"" if size == len(body) else bytes(chance.randrange(LARGEST // 8))
                connection.sendall(head + sent)
                connections.append(connection)
        for at in range(len(body)):
            for connection in connections:
                with suppress(*ERRORS):
                    connection.sendall(body[at : at + 1])
            time.sleep(0.05)  # between two bytes
        attack.note("slow bodies")


def answers_not_taken(attack: Attack, chance: random.Random) -> None:
    """Large answers to readers who read nothing."""
    text = {"name": "TEXT", "datatype": "BYTES", "shape": [1], "data": [text_of(3)]}
    body = json.dumps({"id": "x" * (2 << 20), "inputs": [text]}).encode()
    with ExitStack() as held:
        for _ in range(8):
            with suppress(*ERRORS):
                connection = held.enter_context(attack.connected())
                key = chance.choice(attack.plan.keys)
                head = attack.post("/v2/models/sentiment/infer", len(body), key)
                connection.sendall(head + body)
                attack.note("answers not taken")
        time.sleep(2.0)  # held for a while


def floods(attack: Attack, chance: random.Random) -> None:
    """Good requests behind each other on one connection, as fast as they are taken."""
    body = json.dumps({"inputs": [text_of(4, at) for at in range(8)]}).encode()
    key = chance.choice(attack.plan.keys)
    one = attack.post("/endpoints/sentiment", len(body), key) + body
    with suppress(*ERRORS), attack.connected() as connection:
        for _ in range(200):
            connection.sendall(one)
            status = connection.recv(65_536)[9:12].decode("latin-1")
            attack.note("requests of floods", status or "closed")
            if not status:
                break


ATTACKS: list[Callable[[Attack, random.Random], None]] = [
    worst_bodies, worst_bodies_without_a_key, worst_messages, broken_json, gzip_bombs,
    slow_bodies, answers_not_taken, floods,
]  # fmt: skip


def repeat(kind: Callable[[Attack, random.Random], None], attack: Attack) -> None:
    """One kind of attack, again and again."""
    chance = random.Random(f"{attack.plan.seed} {kind.__name__}")
    while attack.goes_on:
        if attack.turn != QUIET:
            kind(attack, chance)
        time.sleep(PAUSES[kind.__name__])


def main() -> None:
    """All kinds at once."""
    os.nice(NICENESS)
    plan = Plan(**json.loads(sys.argv[1]))
    tls = ssl.create_default_context(cafile=plan.certificate)
    attack = Attack(plan, time.monotonic(), tls)
    threads = [threading.Thread(target=repeat, args=(kind, attack)) for kind in ATTACKS]
    print(attack.began, flush=True)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    used = time.process_time() / plan.seconds
    found = {
        "done": dict(sorted(attack.done.items())),
        "answered": dict(sorted(attack.statuses.items())),
        "cores_of_attackers": round(used, 2),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
