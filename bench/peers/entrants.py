"""The peers, in the order in which tables show them."""

from bench.peers import subjects, with_triton
from bench.peers.plan import Engine, Entrant
from bench.peers.subjects import Subject

_BOTH = (Engine.REAL, Engine.SIMULATED)
HEADRACE = "Headrace"
ENSEMBLE = "Triton ensemble"
UNBATCHED = "Triton ensemble, no batcher"
FASTAPI = "FastAPI"
SIXTY = "60-line gateway"
BARE = "bare uvicorn"
ALONE = "engine alone"  # no server: ONNX Runtime over the same texts, bench/rawengine.py

SUBJECTS = (
    Subject(
        HEADRACE,
        "gateway with the compiled modules of its image, loader and Triton as `headrace up` runs "
        "them, events to Kafka; receipts signed; one instance; room for as many tokens as the "
        "loads bring; the endpoint's `timeoutSeconds` is the deadline",
        with_triton.headrace,
        start_seconds=12.0,
        engines=_BOTH,
        deadline=True,
    ),
    Subject(
        ENSEMBLE,
        "tokeniser and engine in Python backends; dynamic batching of at most 64 rows in both "
        'without delay (page "Batchers"), ragged rows to the engine ("Ragged Batching"), '
        'requests refused after the deadline ("Queue Policy"); one instance each',
        with_triton.ensemble,
        start_seconds=5.0,
        body=subjects.oip_rows,
        read=subjects.oip_output,
        engines=_BOTH,
        lock="ensemble",
        deadline=True,
    ),
    Subject(
        UNBATCHED,
        "the same without `dynamic_batching`, which holds requests back for half a second now and "
        "then before Python backends; so each request is a batch; no deadline of its own",
        with_triton.ensemble_without_batcher,
        start_seconds=5.0,
        body=subjects.oip_rows,
        read=subjects.oip_output,
        engines=_BOTH,
        lock="ensemble",
    ),
    Subject(
        FASTAPI,
        'ONNX Runtime in process; two uvicorn workers (page "Server Workers"), plain `def` '
        '("Concurrency and async / await"), one thread a worker (Starlette\'s "Thread Pool"), '
        "uvloop and httptools; no batching; no deadline of its own",
        subjects.fastapi,
        start_seconds=4.0,
        lock="fastapi",
    ),
    Subject(
        "BentoML",
        "adaptive batching of at most 64 texts with the deadline as `max_latency_ms` (page "
        '"Adaptive batching") and as `traffic.timeout` ("Configurations"); one worker; no '
        "access log",
        subjects.bentoml,
        start_seconds=6.0,
        lock="bentoml",
        deadline=True,
    ),
    Subject(
        "LitServe",
        'batches of at most 64 requests, `batch_timeout` 5 ms (page "Batching"), `fast_queue` '
        'and the deadline as `timeout` ("LitServer"); one worker, one API server',
        subjects.litserve,
        start_seconds=5.0,
        lock="litserve",
        deadline=True,
    ),
    Subject(
        "mosec",
        'batches of at most 64 requests, `max_wait_time` 5 ms (page "Dynamic Batching"), the '
        "deadline as `--timeout`; one worker",
        subjects.mosec,
        start_seconds=3.0,
        lock="mosec",
        deadline=True,
    ),
    Subject(
        "MLServer",
        'adaptive batching of at most 64 requests within 5 ms (page "Adaptive Batching"), one '
        'parallel worker ("Parallel Inference"), debug off; no deadline of its own',
        subjects.mlserver,
        start_seconds=6.0,
        body=subjects.oip,
        read=subjects.oip_output,
        lock="mlserver",
    ),
    Subject(
        "Infinity",
        'engine `optimum` on the CPU, `--batch-size 64` (its page "CLI"); the same graph up to '
        "its last but one step, since it pools by itself; one thread, for which it has no setting; "
        "no deadline of its own",
        subjects.infinity,
        start_seconds=12.0,
        body=subjects.openai_body,
        read=subjects.openai,
        lock="infinity",
    ),
    Subject(
        SIXTY,
        "raw ASGI on uvicorn, `tokenizers`, a list for each length, `grpc.aio`; no admission, "
        "events, metrics or receipts",
        with_triton.sixty_lines,
        start_seconds=4.0,
        engines=(Engine.SIMULATED,),
    ),
    Subject(
        BARE,
        "an answer of the same size as Headrace's, and nothing else",
        subjects.bare,
        start_seconds=2.0,
        engines=(Engine.SIMULATED,),
        computes=False,
    ),
)


# Those whose processor time is shown by process, unless others are named.
SHARING = (HEADRACE, UNBATCHED, FASTAPI, SIXTY)


def entrants(
    names: tuple[str, ...] = (), *, small: bool = False, shares: bool = False
) -> list[Entrant]:
    """Everybody on every engine that they can compute on, or those of these names."""
    if shares and not names:
        names = SHARING
    return [
        Entrant(
            subject=each.name,
            engine=engine,
            start_seconds=each.start_seconds,
            starts=2 if each.deadline and each.name != HEADRACE and not shares else 1,
            floor=not each.computes,
            small=small,
            shares=shares,
        )
        for each in SUBJECTS
        for engine in each.engines
        if not names or each.name in names
    ]


def subject(name: str) -> Subject:
    """The peer of a name."""
    return next(each for each in SUBJECTS if each.name == name)
