"""What a run on a GPU finds, as it is kept: each step's part in a file of its own, then all as one.

Nothing here measures, and nothing is made up: what was not measured is not there.
"""

from pathlib import Path
from statistics import median
from typing import Any

import msgspec

PACKED = "packed"
PADDED = "padded"
ENSEMBLE = "ensemble"
LARGE = "packed, size of BERT-base"
PARTS = "parts"  # folder of what each step found


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """What one load came to.

    Attributes:
        texts_per_second: that were answered with 200.
        p50: milliseconds; the middle of the load generators.
        p99: the worst of the load generators.
        failed: requests that were answered otherwise or not at all.
        gpu_busy: share of the time in which the GPU computed; None if nobody said.
        useful: share of the time in which a packed engine's device computed texts, its padding
            left out; None of other engines.
        generators_busy: share of their cores that the load generators took: near 1 they were the
            limit.
    """

    texts_per_second: float
    p50: float
    p99: float
    failed: int = 0
    gpu_busy: float | None = None
    useful: float | None = None
    generators_busy: float | None = None


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """One load on one engine, over the rounds."""

    engine: str
    gateways: int
    texts: int  # of a request
    form: str  # of the answer
    rounds: list[Round]

    @property
    def key(self) -> tuple[str, int, int, str]:
        """What was offered to whom."""
        return self.engine, self.gateways, self.texts, self.form

    @property
    def texts_per_second(self) -> float:
        """The median of the rounds."""
        return median(each.texts_per_second for each in self.rounds)


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """One caller that asks for one text after the other, milliseconds."""

    engine: str
    way: str
    tokens: int
    p50: float
    p99: float
    calls: int


class Alone(msgspec.Struct, frozen=True, kw_only=True):
    """The engine in a process, with nothing around it: a run of this many rows and tokens."""

    engine: str
    mode: str
    rows: int
    tokens: int
    milliseconds: float

    @property
    def tokens_per_second(self) -> float:
        """Of one run after the other."""
        return 1000 * self.tokens / self.milliseconds

    @property
    def rows_per_second(self) -> float:
        """Of one run after the other."""
        return 1000 * self.rows / self.milliseconds


class Like(msgspec.Struct, frozen=True, kw_only=True):
    """Answers against the fp32 original's."""

    engine: str
    mean_cosine: float
    least_cosine: float


class Part(msgspec.Struct, kw_only=True):
    """What a step found.

    Attributes:
        step: its name.
        took: seconds.
        failed: why it ended early; empty if it did not.
        loads: of gateways and ensemble.
        callers: of one at a time.
        alone: of the engine by itself.
        likeness: of answers.
        notes: whatever helps to read the others.
    """

    step: str
    took: float = 0.0
    failed: str = ""
    loads: list[Load] = []
    callers: list[Caller] = []
    alone: list[Alone] = []
    likeness: list[Like] = []
    notes: dict[str, Any] = {}

    def add(self, load: Load) -> None:
        """Adds rounds of a load."""
        for known in self.loads:
            if known.key == load.key:
                known.rounds.extend(load.rounds)
                return
        self.loads.append(load)

    def keep(self, folder: Path) -> None:
        """Writes all of it at once, so that a step that is cut off keeps what it has."""
        file = folder / PARTS / f"{self.step}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        aside = file.with_suffix(".aside")
        aside.write_bytes(written(self))
        aside.replace(file)


class Run(msgspec.Struct, kw_only=True):
    """All of a run on one machine.

    Attributes:
        label: names the column of the tables.
        commit: that was measured.
        machine: as ``bench.machine`` describes it.
        gpu: name, driver, memory and CUDA; None on the CPU.
        engine: whose figures are held to the goals.
        parts: what the steps found.
    """

    label: str
    commit: str
    machine: dict[str, Any]
    gpu: dict[str, str] | None = None
    engine: str = PACKED
    parts: list[Part] = []

    @property
    def loads(self) -> list[Load]:
        """Of all steps."""
        return [each for part in self.parts for each in part.loads]

    @property
    def callers(self) -> list[Caller]:
        """Of all steps."""
        return [each for part in self.parts for each in part.callers]

    @property
    def alone(self) -> list[Alone]:
        """Of all steps."""
        return [each for part in self.parts for each in part.alone]

    @property
    def likeness(self) -> list[Like]:
        """Of all steps."""
        return [each for part in self.parts for each in part.likeness]


class Runs(msgspec.Struct, kw_only=True):
    """The file of results: runs by their labels, in the order of the tables' columns."""

    runs: list[Run] = []

    def put(self, run: Run) -> None:
        """Adds a run, or takes it in place of the one that has its label."""
        for at, known in enumerate(self.runs):
            if known.label == run.label:
                self.runs[at] = run
                return
        self.runs.append(run)


def parts_of(folder: Path) -> list[Part]:
    """What steps left in a folder, in the order in which they began to be kept."""
    files = sorted((folder / PARTS).glob("*.json"), key=lambda file: file.stat().st_mtime)
    return [msgspec.json.decode(file.read_bytes(), type=Part) for file in files]


def read(file: Path) -> Runs:
    """The runs of a file; none if it is not there."""
    return msgspec.json.decode(file.read_bytes(), type=Runs) if file.is_file() else Runs()


def written(value: msgspec.Struct) -> bytes:
    """As JSON for people; NaN is null."""
    return msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"
