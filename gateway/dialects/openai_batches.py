"""OpenAI's files and batches, for embeddings: ``/v1/files`` and ``/v1/batches``.

The unmodified ``openai`` client works: a file of requests is uploaded, a batch is made of it, and
its answers are another file. They lie in a store that all gateways share, and any gateway runs a
batch (``gateway.batch_jobs``); without ``--batches-url`` each route says so, by 501.

A key sees only what was left with it. Rows are bulk requests. ``x-headrace-space`` with ``POST
/v1/batches`` names the vector space; without it the first answer's is kept to the end.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any, Literal
from urllib.parse import parse_qsl

import msgspec
from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from contracts.tasks import DENSE
from gateway.admission.rate_limits import FEEDBACK
from gateway.batch_jobs.multipart import PartBegins, UploadForm
from gateway.batch_jobs.records import (
    BatchEnd,
    BatchLease,
    BatchRecord,
    FileRecord,
    folder_of,
    new_id,
)
from gateway.batch_jobs.store import MOST_BATCHES, BatchStore
from gateway.batch_jobs.upload import MOST_LINES, URL, Intake
from gateway.dialects.described import ASKING, READ_ERRORS, STRING
from gateway.dialects.front import Front, require_kind
from gateway.errors import (
    RETRY_AFTER_SECONDS,
    BadRequestError,
    GatewayError,
    InvalidInputError,
    OverloadedError,
    TooLargeError,
    UnknownFileError,
    UnsupportedError,
)
from gateway.http.body import BodyReader
from gateway.http.body_pieces import pieces
from gateway.http.error_replies import ErrorForm
from gateway.http.messages import Reply, Request, StreamReply, decode, encode
from gateway.http.openapi import Operation, Schema
from gateway.http.router import Route

_DIALECT = "openai_batches"
_FEED_BYTES = 64 * 1024  # of an upload that are read at once
_FORM_BYTES = 64 * 1024  # of an upload beside its file
_MOST_FIELD_BYTES = 1024
_MOST_UPLOADS, _MOST_UPLOADS_OF_KEY = 8, 4  # at once
_MOST_BODY_BYTES = 64 * 1024  # of other requests
_MOST_LISTED, _MOST_ASKED = 100, 10_000  # of a list at once
_TRIES = 3  # of reading a piece, once an answer has begun
_HOUR = 3600


class FileObject(TypedDict):
    """A file."""

    id: str
    object: Literal["file"]
    bytes: int
    created_at: int
    expires_at: int
    filename: str
    purpose: Literal["batch", "batch_output"]
    status: Literal["processed"]


class FileList(TypedDict):
    """Some of a key's files; ``after`` the last one there may be more."""

    object: Literal["list"]
    data: list[FileObject]
    first_id: str | None
    last_id: str | None
    has_more: bool


class DeletedFile(TypedDict):
    """A file that is there no more."""

    id: str
    object: Literal["file"]
    deleted: bool


class RequestCounts(TypedDict):
    """Lines of a batch."""

    total: int
    completed: int
    failed: int


class BatchError(TypedDict):
    """Why a batch failed as a whole."""

    code: str
    message: str
    line: int | None
    param: str | None


class BatchErrors(TypedDict):
    """All of them."""

    object: Literal["list"]
    data: list[BatchError]


BatchStatus = Literal[
    "validating", "in_progress", "cancelling", "completed", "failed", "expired", "cancelled"
]


class BatchObject(TypedDict):
    """A batch. Times are unix seconds; ``space`` is that of its vectors, once one has answered."""

    id: str
    object: Literal["batch"]
    endpoint: str
    model: str
    errors: BatchErrors | None
    input_file_id: str
    completion_window: str
    status: BatchStatus
    output_file_id: str | None
    error_file_id: str | None
    created_at: int
    in_progress_at: int | None
    expires_at: int
    finalizing_at: int | None
    completed_at: int | None
    failed_at: int | None
    expired_at: int | None
    cancelling_at: int | None
    cancelled_at: int | None
    request_counts: RequestCounts
    metadata: dict[str, str] | None
    space: str | None


class BatchList(TypedDict):
    """Some of a key's batches, the newest first."""

    object: Literal["list"]
    data: list[BatchObject]
    first_id: str | None
    last_id: str | None
    has_more: bool


_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=80)]
_Key = Annotated[str, msgspec.Meta(max_length=64)]
_Value = Annotated[str, msgspec.Meta(max_length=512)]
_Metadata = Annotated[dict[_Key, _Value], msgspec.Meta(max_length=16)]


class BatchRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is to be answered, and within what time: 24h as at OpenAI, or other hours."""

    input_file_id: _Name
    endpoint: Literal["/v1/embeddings"]
    completion_window: Annotated[str, msgspec.Meta(pattern="^[1-9][0-9]{0,2}h$")]
    metadata: _Metadata | None = None


class CancelRequest(msgspec.Struct, frozen=True):
    """Nothing is read of it, and it may be left out."""


_batch_requests = msgspec.json.Decoder(BatchRequest)
_cancel_requests = msgspec.json.Decoder(CancelRequest)

_ERRORS = (*READ_ERRORS, HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.TOO_MANY_REQUESTS)
_POST_ERRORS = (
    *_ERRORS,
    HTTPStatus.REQUEST_TIMEOUT,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
)


def _describe_path(name: str, what: str) -> Schema:
    place = {"name": name, "in": "path", "required": True}
    return {**place, "schema": STRING, "description": what}


def _describe_query(name: str, schema: Schema) -> Schema:
    return {"name": name, "in": "query", "required": False, "schema": schema}


_FILE, _BATCH = _describe_path("file", "a file's id"), _describe_path("batch", "a batch's id")
_PAGE = (
    _describe_query("after", STRING),
    _describe_query("limit", {"type": "integer", "minimum": 1, "maximum": _MOST_ASKED}),
)
_SPACE: Schema = {
    "name": "x-headrace-space",
    "in": "header",
    "required": False,
    "schema": STRING,
    "description": "only vectors of this space, or of the next one: next",
}


class OpenAIBatches:
    """The routes.

    Args:
        front: what all dialects use.
        bodies: read bodies.
        store: of files and batches; None if there is none.
    """

    def __init__(self, front: Front, bodies: BodyReader, store: BatchStore | None) -> None:
        self._front = front
        self._bodies = bodies
        self._store = store
        self._uploads: dict[str, int] = {}  # by owner

    def routes(self) -> list[Route]:
        """What the application serves for this dialect."""
        file = ("/v1/files/{file}", (_FILE,))
        batch = ("/v1/batches/{batch}", (_BATCH,))
        return [
            self._route("POST", "/v1/files", self.upload, "Leave a file", FileObject, upload=True),
            self._route(
                "GET",
                "/v1/files",
                self.files,
                "Files",
                FileList,
                (
                    *_PAGE,
                    _describe_query("order", {"enum": ["asc", "desc"]}),
                    _describe_query("purpose", STRING),
                ),
            ),
            self._route("GET", file[0], self.file, "One file", FileObject, file[1]),
            self._route("DELETE", file[0], self.delete, "Remove a file", DeletedFile, file[1]),
            self._route("GET", f"{file[0]}/content", self.content, "What it holds", Any, file[1]),
            self._route(
                "POST",
                "/v1/batches",
                self.create,
                "Have a file answered",
                BatchObject,
                (_SPACE,),
                request=BatchRequest,
            ),
            self._route("GET", "/v1/batches", self.batches, "Batches", BatchList, _PAGE),
            self._route("GET", batch[0], self.batch, "One batch", BatchObject, batch[1]),
            self._route(
                "POST",
                f"{batch[0]}/cancel",
                self.cancel,
                "Cancel a batch",
                BatchObject,
                batch[1],
                request=CancelRequest,
            ),
        ]

    def _route(  # noqa: PLR0917 - a table's columns
        self,
        method: str,
        path: str,
        handle: Callable[[Request], Any],
        summary: str,
        response: object,
        parameters: tuple[Schema, ...] = (),
        *,
        request: type[msgspec.Struct] | None = None,
        upload: bool = False,
    ) -> Route:
        posts = method == "POST"
        operation = Operation(
            "OpenAI",
            summary,
            response,
            description=_DESCRIPTIONS.get(summary, ""),
            request=request,
            examples=_EXAMPLES if request is BatchRequest else {"as it is": {}},
            parameters=(*parameters, *ASKING),
            errors=_POST_ERRORS if posts else _ERRORS,
            upload=upload,
        )
        return Route(
            method,
            path,
            handle,
            _DIALECT,
            None if self._store is None else operation,  # it refuses whatever is sent
            ErrorForm.OPENAI,
            reads_body=posts,
        )

    def _enter(self, request: Request) -> tuple[BatchStore, str]:
        """The store, and the folder of the caller's own."""
        context = request.context
        if not context.recognised:
            self._front.admission.recognise(context)
        if self._store is None:
            raise UnsupportedError(
                "Files and batches are off: this gateway has no --batches-url "
                "(gateway.batches.url in the chart)."
            )
        return self._store, folder_of(context.caller)

    # Files.

    async def upload(self, request: Request) -> Reply:
        """Takes a file in, as it arrives."""
        store, owner = self._enter(request)
        await self._front.admission.scheduler.take(FEEDBACK)
        request.context.body_read = True  # or dropped, of a form that can't be read
        form = UploadForm(request.headers.get(b"content-type", b""))
        held = await store.ask(partial(store.file_ids, owner))
        if len(held) >= store.most_files:
            raise TooLargeError(
                f"The API key has {len(held)} files here, as many as it may: delete some."
            )
        with self._uploading(owner):
            record = await self._receive(request, store, owner, form)
        self._front.admission.count(request.context)
        return Reply(encode(_file_object(record, store)))

    @contextmanager
    def _uploading(self, owner: str) -> Iterator[None]:
        """Counts an upload while it goes on; raises ``OverloadedError``."""
        mine = self._uploads.get(owner, 0)
        if sum(self._uploads.values()) >= _MOST_UPLOADS or mine >= _MOST_UPLOADS_OF_KEY:
            raise OverloadedError(
                "Too many files are being uploaded at this moment; try again.",
                retry_after_seconds=RETRY_AFTER_SECONDS,
            )
        self._uploads[owner] = mine + 1
        try:
            yield
        finally:
            self._uploads[owner] -= 1
            if not self._uploads[owner]:
                del self._uploads[owner]

    async def _receive(
        self, request: Request, store: BatchStore, owner: str, form: UploadForm
    ) -> FileRecord:
        now = time.time()
        name = new_id("file-", now)
        reader = _UploadReader(form, Intake(store, owner, name, self._bodies.most_bytes))
        buffer = bytearray()
        try:
            async for piece in pieces(request, store.file_bytes + _FORM_BYTES):
                buffer += piece
                if len(buffer) >= _FEED_BYTES:
                    await self._read(request, store, partial(reader.feed, bytes(buffer)), reader)
                    buffer.clear()
            await self._read(request, store, partial(reader.feed, bytes(buffer)), reader)
            record = await store.ask(partial(reader.finish, name, int(now)))
            await store.ask(partial(store.add_file, owner, record))
        except BaseException:
            # Whatever is not removed now is removed with all that is old.
            self._forget(store, owner, name)
            raise
        return record

    async def _read(
        self, request: Request, store: BatchStore, work: Callable[[], None], reader: "_UploadReader"
    ) -> None:
        """Reads on, in a thread, and has the caller charged for that."""
        before = reader.seconds
        await store.ask(work)
        self._front.admission.spend(request.context, reader.seconds - before)
        request.context.hold(reader.intake.held + 2 * _FEED_BYTES)

    def _forget(self, store: BatchStore, owner: str, name: str) -> None:
        store.soon(partial(store.remove_file, owner, name))

    async def files(self, request: Request) -> Reply:
        """The caller's files."""
        store, owner = self._enter(request)
        asked = _Page.of(request.query)
        self._front.admission.count(request.context)  # a list reads hundreds of objects
        names = await store.ask(partial(store.file_ids, owner))
        records, more = await _page(
            asked,
            names,
            lambda name: store.ask(partial(store.file, owner, name)),
            lambda record: asked.purpose in ("", record.purpose),
        )
        return _list([_file_object(each, store) for each in records], more)

    async def file(self, request: Request) -> Reply:
        """One file."""
        store, owner = self._enter(request)
        record = await store.ask(partial(store.file, owner, request.params["file"]))
        return Reply(encode(_file_object(record, store)))

    async def delete(self, request: Request) -> Reply:
        """Removes a file, unless a batch reads it."""
        store, owner = self._enter(request)
        record = await store.ask(partial(store.file, owner, request.params["file"]))
        for name in await self._open_of(store, owner):
            batch = await _or_none(store.ask(partial(store.batch, owner, name)))
            if batch is not None and batch.input_file_id == record.id:
                raise InvalidInputError(f"file: the batch {name} reads it; cancel that first.")
        await store.ask(partial(store.remove_file, owner, record.id))
        deleted: DeletedFile = {"id": record.id, "object": "file", "deleted": True}
        return Reply(encode(deleted))

    async def content(self, request: Request) -> StreamReply:
        """What a file holds, piece by piece."""
        store, owner = self._enter(request)
        record = await store.ask(partial(store.file, owner, request.params["file"]))
        name = f'attachment; filename="{record.id}.jsonl"'
        headers = [(b"content-disposition", name.encode())]
        return StreamReply(_FileContent(store, owner, record), b"application/jsonl", headers)

    # Batches.

    async def create(self, request: Request) -> Reply:
        """Makes a batch of a file."""
        store, owner = self._enter(request)
        context, front = request.context, self._front
        await front.admission.scheduler.take(FEEDBACK)
        body = decode(_batch_requests, await self._bodies.read(request, _MOST_BODY_BYTES))
        hours = int(body.completion_window[:-1])
        if hours > store.days * 24:
            raise InvalidInputError(
                f"completion_window: files are kept for {store.days:g} days here; send less."
            )
        record = await store.ask(partial(store.file, owner, body.input_file_id))
        if record.purpose != "batch":
            raise InvalidInputError("input_file_id: it is the output of a batch.")
        forces = context.space is not None
        front.admission.authorise(context, record.model, forces_version=forces)
        require_kind(front.endpoints.describe(record.model), DENSE, "model", "embeddings need")
        if len(await self._open_of(store, owner)) >= store.most_open:
            raise TooLargeError(
                f"The API key has {store.most_open} batches that are not over, as many as it may."
            )
        if len(await store.ask(partial(store.batch_ids, owner))) >= MOST_BATCHES:
            raise TooLargeError(
                f"The API key has {MOST_BATCHES} batches here, as many as it may; they leave after "
                f"{store.days:g} days."
            )
        now = time.time()
        batch = BatchRecord(
            id=new_id("batch_", now),
            created_at=int(now),
            expires_at=int(now) + hours * _HOUR,
            input_file_id=record.id,
            model=record.model,
            pieces=record.pieces,
            metadata=body.metadata,
            caller=context.caller,
            space=context.space,
        )
        await store.ask(partial(store.add_batch, owner, batch))
        front.admission.count(context)
        store.on_new()
        return Reply(encode(_batch_object(batch, _State())))

    async def _open_of(self, store: BatchStore, owner: str) -> list[str]:
        found = await store.ask(store.open_batches)
        return [name for of, name in found if of == owner]

    async def batches(self, request: Request) -> Reply:
        """The caller's batches."""
        store, owner = self._enter(request)
        asked = _Page.of(request.query)
        self._front.admission.count(request.context)  # a list reads hundreds of objects
        names = await store.ask(partial(store.batch_ids, owner))
        records, more = await _page(
            asked,
            names,
            lambda name: store.ask(partial(_read_batch, store, owner, name)),
            lambda _: True,
        )
        return _list([_batch_object(*each) for each in records], more)

    async def batch(self, request: Request) -> Reply:
        """One batch."""
        store, owner = self._enter(request)
        found = await store.ask(partial(_read_batch, store, owner, request.params["batch"]))
        return Reply(encode(_batch_object(*found)))

    async def cancel(self, request: Request) -> Reply:
        """Asks for a batch to end; what was answered by then is kept."""
        store, owner = self._enter(request)
        await self._front.admission.scheduler.take(FEEDBACK)
        body = await self._bodies.read(request, _MOST_BODY_BYTES)
        if body.strip():
            decode(_cancel_requests, body)
        name = request.params["batch"]
        await store.ask(partial(store.batch, owner, name))
        if await store.ask(partial(store.end, owner, name)) is None:
            await store.ask(partial(store.cancel, owner, name, time.time()))
        self._front.admission.count(request.context)
        found = await store.ask(partial(_read_batch, store, owner, name))
        return Reply(encode(_batch_object(*found)))


class _UploadReader:
    """Reads the form of an upload, and hands its file on. Blocks on the store.

    Attributes:
        seconds: of a processor that this took.
    """

    def __init__(self, form: UploadForm, intake: Intake) -> None:
        self.intake = intake
        self.seconds = 0.0
        self._form = form
        self._field = ""
        self._values: dict[str, bytes] = {}
        self._filename: str | None = None

    def feed(self, data: bytes) -> None:
        """Takes bytes of the body; raises ``GatewayError``."""
        began = time.thread_time()
        try:
            for found in self._form.feed(data):
                if isinstance(found, PartBegins):
                    self._begin(found)
                elif self._field == "file":
                    self.intake.feed(found)
                else:
                    self._keep(found)
        finally:
            self.seconds += time.thread_time() - began

    def _begin(self, part: PartBegins) -> None:
        self._field = part.name
        if part.name == "file":
            if self._filename is not None:
                raise BadRequestError("file: the form has two.")
            self._filename = part.filename or "file.jsonl"
            if "purpose" in self._values:  # refused before the file is sent
                self._check_purpose()

    def _keep(self, value: bytes) -> None:
        kept = self._values.get(self._field, b"") + value
        if len(kept) > _MOST_FIELD_BYTES:
            raise BadRequestError(f"{self._field}: it is longer than any value of it.")
        self._values[self._field] = kept

    def _check_purpose(self) -> None:
        if self._values.get("purpose") != b"batch":
            raise InvalidInputError("purpose: files are taken for batches only; send batch.")

    def finish(self, name: str, now: int) -> FileRecord:
        """The file, all of which was read; raises ``GatewayError``."""
        if not self._form.is_over:
            raise BadRequestError("The form breaks off before its end.")
        if self._filename is None:
            raise BadRequestError("file: the form has none.")
        self._check_purpose()
        writer = self.intake.finish()
        return FileRecord(
            id=name,
            created_at=now,
            filename=self._filename,
            purpose="batch",
            pieces=writer.pieces,
            model=self.intake.model,
        )


class _FileContent:
    """What a file holds; ``gateway.http.messages.Chunks``."""

    def __init__(self, store: BatchStore, owner: str, record: FileRecord) -> None:
        self._store = store
        self._owner = owner
        self._record = record
        self._next = 0
        self.status = int(HTTPStatus.OK)

    def __aiter__(self) -> "_FileContent":
        """Itself."""
        return self

    async def __anext__(self) -> bytes:
        """The next piece; raises ``GatewayError``, so that the answer breaks off."""
        number = self._next
        if number >= len(self._record.pieces):
            raise StopAsyncIteration
        self._next += 1
        store = self._store
        read = partial(store.piece, self._owner, self._record.id, number)
        tries = _TRIES
        while True:
            try:
                return await store.ask(read)
            except GatewayError as error:
                tries -= 1
                if not tries:
                    self.status = int(error.status)
                    raise

    def close(self) -> None:
        """No piece is read any more."""
        self._next = len(self._record.pieces)


class _Page(msgspec.Struct, frozen=True):
    """What part of a list is asked for."""

    after: str = ""
    limit: int = 20
    order: str = "desc"
    purpose: str = ""

    @classmethod
    def of(cls, query: bytes) -> "_Page":
        """As a query says; raises ``BadRequestError``."""
        sent = dict(parse_qsl(query.decode("latin-1")[:4096]))
        try:
            page = msgspec.convert(
                {name: sent[name] for name in cls.__struct_fields__ if name in sent},
                cls,
                strict=False,
            )
        except msgspec.ValidationError:
            raise BadRequestError(
                f"limit: expected a number, not {sent['limit'][:20]!r}."
            ) from None
        if not 1 <= page.limit <= _MOST_ASKED or page.order not in ("asc", "desc"):
            raise BadRequestError(f"limit: expected 1 to {_MOST_ASKED}, and as order asc or desc.")
        return page


async def _page(
    asked: _Page,
    names: list[str],
    read: Callable[[str], Any],
    is_wanted: Callable[[Any], bool],
) -> tuple[list[Any], bool]:
    """The records of a page, and whether there are more; of names, the newest first."""
    if asked.order == "asc":
        names.reverse()
    if asked.after:  # which may have been removed meanwhile; names are in order
        rises = asked.order == "asc"
        names = [each for each in names if each != asked.after and (each > asked.after) == rises]
    found: list[Any] = []
    most = min(asked.limit, _MOST_LISTED)
    for name in names:
        record = await _or_none(read(name))
        if record is None or not is_wanted(record):
            continue
        if len(found) == most:
            return found, True
        found.append(record)
    return found, False


def _list(data: list[FileObject] | list[BatchObject], more: bool) -> Reply:  # noqa: FBT001
    """The answer of a list: ``FileList`` or ``BatchList``."""
    ends = (data[0]["id"], data[-1]["id"]) if data else (None, None)
    listing = {"object": "list", "data": data, "first_id": ends[0], "last_id": ends[1]}
    return Reply(encode({**listing, "has_more": more}))


async def _or_none(asking: Any) -> Any:  # noqa: ANN401 - what it gives
    """None for what has been removed meanwhile, or is being written."""
    try:
        return await asking
    except UnknownFileError:
        return None


class _State(msgspec.Struct, frozen=True):
    """What there is of a batch beside what was asked for."""

    lease: BatchLease | None = None
    space: str | None = None
    cancelling_at: int | None = None
    end: BatchEnd | None = None


def _read_batch(store: BatchStore, owner: str, name: str) -> tuple[BatchRecord, _State]:
    batch = store.batch(owner, name)
    end = store.end(owner, name)
    lease = store.lease(owner, name)[1]
    return batch, _State(lease, store.space(owner, name), store.cancelled_at(owner, name), end)


def _file_object(record: FileRecord, store: BatchStore) -> FileObject:
    return {
        "id": record.id,
        "object": "file",
        "bytes": record.bytes,
        "created_at": record.created_at,
        "expires_at": record.created_at + int(store.days * 86400),
        "filename": record.filename,
        "purpose": record.purpose,
        "status": "processed",
    }


def _batch_object(batch: BatchRecord, state: _State) -> BatchObject:
    end, lease = state.end, state.lease
    status: BatchStatus = "validating" if lease is None else "in_progress"
    if end is not None:
        status = end.outcome
    elif state.cancelling_at is not None:
        status = "cancelling"
    counts = end or lease or BatchLease("")
    errors: BatchErrors | None = None
    if end is not None and end.reason:
        error: BatchError = {
            "code": "batch_failed",
            "message": end.reason,
            "line": None,
            "param": None,
        }
        errors = {"object": "list", "data": [error]}

    def at(outcome: str) -> int | None:
        return end.at if end is not None and end.outcome == outcome else None

    return {
        "id": batch.id,
        "object": "batch",
        "endpoint": URL,
        "model": batch.model,
        "errors": errors,
        "input_file_id": batch.input_file_id,
        "completion_window": f"{(batch.expires_at - batch.created_at) // _HOUR}h",
        "status": status,
        "output_file_id": None if end is None else end.output_file_id,
        "error_file_id": None if end is None else end.error_file_id,
        "created_at": batch.created_at,
        "in_progress_at": None if lease is None else lease.since,
        "expires_at": batch.expires_at,
        "finalizing_at": None,
        "completed_at": at("completed"),
        "failed_at": at("failed"),
        "expired_at": at("expired"),
        "cancelling_at": state.cancelling_at,
        "cancelled_at": at("cancelled"),
        "request_counts": {
            "total": batch.lines,
            "completed": counts.completed,
            "failed": counts.failed,
        },
        "metadata": batch.metadata,
        "space": state.space,
    }


_EXAMPLES = {
    "a day": {
        "input_file_id": "file-69294c8b1d0f4c1f9a7be1c2d3e4f506",
        "endpoint": URL,
        "completion_window": "24h",
    }
}
_DESCRIPTIONS = {
    "Leave a file": (
        f"JSON lines of requests, up to {MOST_LINES}, all of one model; purpose is batch. Off "
        "(501) without a --batches-url."
    ),
    "Have a file answered": (
        "With what interactive requests leave idle. All vectors are of one space: that of the "
        "first answer, unless x-headrace-space names one."
    ),
}
