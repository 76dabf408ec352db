"""Has the gateway make the vectors of a file's texts, part by part, and goes on where it stopped.

Parts lie in a folder beside the output until the output is whole. Each is written under another
name and renamed, so that the parts that are there say what is done: whatever ends this program, the
same command goes on, and no id is lost or there twice. The journal says whose parts they are, and
the vector space that answered first. From then on that space is asked for by its name, and an
answer of another one ends the backfill: vectors of two spaces never meet in one output.
"""

import asyncio
import fcntl
import itertools
import json
import math
import random
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from http import HTTPStatus
from pathlib import Path

import httpx

from contracts.backoff import Backoff
from headrace.backfill import files
from headrace.backfill.files import Id, Survey, TextColumns
from headrace.backfill.vectors import DENSE, KindName, Vector, choose_kind
from headrace.errors import RefusedError, RequestFailedError, sentence_of
from service import durable

SAMPLE = 20
_MOST_CHARACTERS = 100_000  # of a request of several texts
_NOTED_EVERY_SECONDS = 30.0
_WAIT_SECONDS = 60.0  # that a request may wait for idle capacity
_GRACE_SECONDS = 15.0
_GIVE_UP_SECONDS = 600.0  # of nothing but faults
_PAUSES = Backoff(0.5, 30.0, jitter=0.5)
# What another moment, or another gateway, may answer. A proxy says 502; 408 if the body came late.
_TRANSIENT = (408, 429, 502, 503, 504)
_BUSY = (429, 504)  # the gateway works, and will have time
# Of one text twice, as its kind of vectors is compared: batches and precisions differ a little.
_LEAST_SIMILARITY = 0.999


@dataclass(frozen=True, slots=True)
class BackfillPlan:
    """What to ask, and of whom; ``space`` is None for the one that answers now."""

    url: str
    endpoint: str
    space: str | None = None
    api_key: str | None = None
    concurrency: int = 8
    texts: int = 32  # of a request
    part_rows: int = 4096
    kind: KindName | None = None  # that which the endpoint gives


@dataclass(frozen=True, slots=True)
class Journal:
    """Whose parts lie in a folder; ``space``: that answered, empty before the first part."""

    endpoint: str
    asked: str | None
    rows: int
    part_rows: int
    digest: str
    space: str = ""
    kind: str | None = None


class Parts:
    """The folder of parts of one output."""

    def __init__(self, folder: Path, form: str) -> None:
        self.folder = folder
        self._form = form

    @property
    def whole(self) -> Path:
        """The output while it is checked."""
        return self.folder / f"whole{self._form}"

    def part(self, number: int) -> Path:
        """A part, done if it is there."""
        return self.folder / f"part-{number:08d}{self._form}"

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Keeps others from the folder; raises ``HeadraceError``."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with (self.folder / "lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                yield
        except BlockingIOError as error:
            raise RefusedError(f"Another backfill works on {self.folder}.") from error
        except OSError as error:  # of whatever is done meanwhile
            raise RequestFailedError(f"Files can't be written or read: {error}.") from error

    def read(self) -> Journal | None:
        """The journal, None if there is none; raises ``RefusedError``: it is unreadable."""
        try:
            return Journal(**json.loads((self.folder / "journal.json").read_bytes()))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError) as error:
            raise RefusedError(f"The journal in {self.folder} can't be read: {error}.") from error

    def write(self, journal: Journal) -> None:
        """Writes the journal."""
        durable.write(self.folder / "journal.json", json.dumps(asdict(journal)).encode())

    def remove(self) -> None:
        """Removes all, the journal first: without one, the output is whole."""
        (self.folder / "journal.json").unlink()
        shutil.rmtree(self.folder)


class Backfill:
    """One backfill, or what is left of it.

    Attributes:
        advance: is told how many rows more are done, and whether they were before.
        note: is told at times, in a thread, how many rows are done of this space; not of all.
        space: that answers, empty until one has.
        retries: requests that were sent again.

    Raises:
        RefusedError: the folder has parts of another backfill.
    """

    def __init__(
        self,
        plan: BackfillPlan,
        source: Path,
        columns: TextColumns,
        found: Survey,
        parts: Parts,
    ) -> None:
        self._plan = plan
        self._source = source
        self._columns = columns
        self._parts = parts
        self.advance: Callable[[int, bool], None] = lambda _, __: None
        self.note: Callable[[int, str], None] = lambda _, __: None
        self._noted = -math.inf
        self.retries = 0
        new = Journal(
            plan.endpoint, plan.space, found.rows, plan.part_rows, found.digest, kind=plan.kind
        )
        self._journal = parts.read() or new
        if replace(self._journal, space="") != new:
            raise RefusedError(
                f"{parts.folder} has parts of another backfill: its texts, endpoint, space or kind "
                "were others. Finish that one, or remove the folder."
            )
        self._answered = time.monotonic()
        self._kind = DENSE
        self._width = 0  # of a vector

    @property
    def space(self) -> str:
        """The space of the vectors, empty until one has answered."""
        return self._journal.space

    async def run(self, output: Path) -> float:
        """Makes the parts that are not there, joins and checks them, and puts them at ``output``.

        Returns:
            The least similarity of a vector of the sample and what the gateway says now.

        Raises:
            RequestFailedError: the gateway refuses, nobody answers for long, a check fails, or the
                endpoint gives no vectors or several kinds of them.
        """
        async with httpx.AsyncClient(
            timeout=_WAIT_SECONDS + _GRACE_SECONDS,
            limits=httpx.Limits(max_connections=self._plan.concurrency, keepalive_expiry=2.0),
            trust_env=False,
        ) as self._client:
            await self._learn_kind()
            if not self.space:
                await self._settle()
            rows = files.read_texts(self._source, self._columns)
            count = done = 0
            await asyncio.to_thread(self.note, done, self.space)
            while part := list(itertools.islice(rows, self._plan.part_rows)):
                path = self._parts.part(count)
                count += 1
                if path.exists():
                    self.advance(len(part), True)
                else:
                    vectors = await self._vectors([text for _, text in part])
                    ids: list[Id] = [key for key, _ in part]
                    await asyncio.to_thread(files.write_part, path, ids, vectors)
                done += len(part)
                is_late = time.monotonic() >= self._noted + _NOTED_EVERY_SECONDS
                if is_late and done < self._journal.rows:  # not whole before it is checked
                    await asyncio.to_thread(self.note, done, self.space)
                    self._noted = time.monotonic()
            parts = map(self._parts.part, range(count))
            await asyncio.to_thread(files.join_parts, parts, self._parts.whole)
            least = await self._check()
        self._parts.whole.replace(output)
        durable.sync(output.parent)
        return least

    async def _learn_kind(self) -> None:
        """Learns which kind of vectors the endpoint gives, before a text is sent."""
        told = (await self._ask_patiently("GET", f"/endpoints/{self._plan.endpoint}")).json()
        self._kind = choose_kind(self._plan.endpoint, str(told.get("task")), self._plan.kind)

    async def _settle(self) -> None:
        """Learns which space answers, before anything of it is kept."""
        first = next(files.read_texts(self._source, self._columns))[1]
        answer = await self._post([first])
        space = answer.headers.get("x-headrace-space", "")
        if not space:
            raise RequestFailedError(
                f"{self._plan.endpoint} names no vector space in x-headrace-space: its version was "
                "converted by an older release, or gives no vectors."
            )
        self._journal = replace(self._journal, space=space)
        self._parts.write(self._journal)

    async def _vectors(self, texts: list[str]) -> list[Vector]:
        chunks = list(_chunks(texts, self._plan.texts))
        found: list[list[Vector]] = [[] for _ in chunks]
        waiting = iter(enumerate(chunks))

        async def work() -> None:
            for number, chunk in waiting:
                found[number] = await self._ask(chunk)
                self.advance(len(chunk), False)

        workers = [asyncio.create_task(work()) for _ in range(self._plan.concurrency)]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
        return [vector for each in found for vector in each]

    async def _ask(self, texts: list[str]) -> list[Vector]:
        """The vectors of some texts; in halves if they are too much for one request."""
        answer = await self._post(texts)
        if answer.status_code == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
            half = len(texts) // 2
            return [*await self._ask(texts[:half]), *await self._ask(texts[half:])]
        space = answer.headers.get("x-headrace-space", "")
        if space != self.space:
            raise RequestFailedError(
                f"The vector space changed from {self.space} to {space or 'none'} in the middle: "
                f"nothing of it was kept. Remove {self._parts.folder} to begin again."
            )
        try:
            vectors = self._kind.read_answer(answer.json())
        except (ValueError, KeyError, TypeError) as error:
            raise RequestFailedError(f"An answer has no vectors: {error!r}.") from error
        widths = {self._kind.width(vector) for vector in vectors}
        self._width = self._width or min(widths, default=0)
        if len(vectors) != len(texts) or widths != {self._width}:
            raise RequestFailedError("An answer has not one vector of one size for each text.")
        return vectors

    async def _post(self, texts: list[str]) -> httpx.Response:
        """An answer with vectors, or that the texts are too many; tries again while it can help."""
        path, body = self._kind.make_request(self._plan.endpoint, texts)
        return await self._ask_patiently("POST", path, body, splits=len(texts) > 1)

    async def _ask_patiently(
        self, method: str, path: str, body: object = None, *, splits: bool = False
    ) -> httpx.Response:
        plan, failures = self._plan, 0
        headers = {
            "x-headrace-class": "bulk",
            "x-request-timeout": f"{_WAIT_SECONDS:g}",
            **({"x-headrace-space": space} if (space := self.space or plan.space) else {}),
            **({} if plan.api_key is None else {"authorization": f"Bearer {plan.api_key}"}),
        }
        while True:
            pause = 0.0
            try:
                answer = await self._client.request(
                    method, f"{plan.url}{path}", json=body, headers=headers
                )
                why = f"{answer.status_code}: {sentence_of(answer.content)}"
                if answer.status_code == HTTPStatus.OK:
                    if body is not None or _names_versions(answer):
                        self._answered = time.monotonic()
                        return answer
                    why = f"{plan.endpoint} has no version that this gateway serves."
                if answer.status_code == HTTPStatus.REQUEST_ENTITY_TOO_LARGE and splits:
                    return answer
                if answer.status_code not in (HTTPStatus.OK, *_TRANSIENT):
                    raise self._failure(why)
                if answer.status_code in _BUSY:
                    self._answered = time.monotonic()
                said = answer.headers.get("retry-after", "")
                pause = min(60.0, float(said)) if said.isdecimal() else 0.0
            except httpx.HTTPError as error:
                why = f"no answer: {error or type(error).__name__}"
            if time.monotonic() - self._answered > _GIVE_UP_SECONDS:
                raise self._failure(why)
            failures += 1
            self.retries += 1
            drawn = random.random()  # noqa: S311 - so that requests do not come at once
            await asyncio.sleep(max(pause, _PAUSES.after(failures, drawn)))

    def _failure(self, why: str) -> RequestFailedError:
        return RequestFailedError(f"{why} The same command goes on from what is done.")

    async def _check(self) -> float:
        """Compares the whole with the input, row by row, and a sample with the gateway.

        Raises:
            RequestFailedError: an id is not where it was, or a vector is another one.
        """
        drawn = random.Random()  # noqa: S311 - a sample
        chosen = set(drawn.sample(range(self._journal.rows), min(SAMPLE, self._journal.rows)))
        sample: list[tuple[Id, str, Vector]] = []
        texts = files.read_texts(self._source, self._columns)
        rows = itertools.zip_longest(texts, files.read_vectors(self._parts.whole))
        for number, (asked, made) in enumerate(rows):
            if asked is None or made is None or asked[0] != made[0]:
                raise RequestFailedError(
                    f"Row {number + 1} of {self._parts.whole} is not that of the input: both files "
                    "are left as they are."
                )
            if number in chosen:
                sample.append((asked[0], asked[1], made[1]))
        least = 1.0
        for key, text, kept in sample:
            (now,) = await self._ask([text])
            least = min(least, self._kind.similarity(kept, now))
            if not least >= _LEAST_SIMILARITY:
                raise RequestFailedError(
                    f"The gateway gives another vector for {key!r} now, of similarity {least:.4f} "
                    f"to the one in {self._parts.whole}, which is left as it is."
                )
        return least


def _names_versions(answer: httpx.Response) -> bool:
    """Whether the task in it is known: a gateway that has just begun names a usual one."""
    try:
        return bool(answer.json()["versions"])
    except (ValueError, KeyError, TypeError):  # a proxy's page
        return False


def _chunks(texts: list[str], most: int) -> Iterator[list[str]]:
    chunk: list[str] = []
    characters = 0
    for text in texts:
        if chunk and (len(chunk) >= most or characters + len(text) > _MOST_CHARACTERS):
            yield chunk
            chunk, characters = [], 0
        chunk.append(text)
        characters += len(text)
    yield chunk
