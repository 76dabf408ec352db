"""The packed engine in a process with nothing around it: milliseconds of runs by tokens."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tokenizers import Tokenizer

from bench import corpus
from bench.gpu.device import Kind
from bench.gpu.found import Alone
from bench.gpu.site import Setting
from bench.peers.model import PreparedModel
from contracts.manifest import TOKENIZER
from registry.loading.placement import SharedRepository
from registry.loading.splits import InstanceSplit

TOKENS = (512, 1024, 2048, 4096, 8192, 16_384, 100_000)
LONE = (16, 128)  # tokens of rows that are run alone
SMALL_TOKENS = (64,)
_FEW = (16_384,)
_PROGRAM = Path(__file__).with_name("alone_program.py")
_SPARE_SECONDS = 5.0


def measure(
    engine: str, prepared: PreparedModel, setting: Setting, *, few: bool = False
) -> Iterator[Alone]:
    """Lone rows and rows together, by each mode; ``few``: one large run only."""
    repository = setting.scratch / "alone"
    name = prepared.manifest.ref().triton_model
    repository.mkdir()
    SharedRepository(repository).place(name, prepared.package, "python", InstanceSplit(1, 1))
    known = Tokenizer.from_file(str(prepared.package / TOKENIZER))
    known.no_padding()
    known.enable_truncation(prepared.manifest.tokenizer.max_tokens)
    rows = [encoding.ids for encoding in known.encode_batch(corpus.replay())]
    lone = [known.encode(corpus.of_length(count, 1, known)[0]).ids for count in LONE]
    sizes = SMALL_TOKENS if setting.small else _FEW if few else TOKENS
    told = {
        "folder": str(repository / name / "1"),
        "gpu": setting.kind is Kind.GPU,
        "batches": [*([] if few else [[row] for row in lone]), *(first(rows, at) for at in sizes)],
        "seconds": 0.05 if setting.small else 0.3,
        "limit": setting.left - _SPARE_SECONDS,
        "compiled": not few and not setting.small,
    }
    command = [str(setting.environment() / "bin" / "python"), "-P", str(_PROGRAM)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("the program has no pipes")
        try:
            process.stdin.write(json.dumps(told).encode())
            process.stdin.close()
            for line in process.stdout:
                yield Alone(engine=engine, **json.loads(line))
        except BaseException:
            process.kill()
            raise
    if process.returncode != 0:
        raise RuntimeError(f"the engine ended with {process.returncode}; its words are above")


def first(rows: list[list[int]], tokens: int) -> list[list[int]]:
    """The first rows that come to at most this many tokens, one at least."""
    taken: list[list[int]] = []
    total = 0
    for row in rows:
        total += len(row)
        if taken and total > tokens:
            break
        taken.append(row)
    return taken
