"""Whole worlds for the page: endpoint objects and the board that goes with them."""

from dataclasses import dataclass, replace

from ui_board import Traffic, board, drift
from ui_endpoints import endpoint, on_its_way, rolled_back, serving

from contracts.endpoint import (
    Arm,
    Candidate,
    EndpointStatus,
    ModelEndpoint,
    Phase,
    Transition,
)
from contracts.tasks import Task
from stats.evaluation.board import (
    Board,
)


@dataclass(frozen=True)
class World:
    """What a page is made from."""

    endpoints: tuple[ModelEndpoint, ...]
    board: Board


def quiet(now: float) -> World:
    """One endpoint that serves, and nothing happens."""
    return World(
        (endpoint("sentiment", serving("3", now)),),
        board({"sentiment": [Traffic("3", Arm.STABLE)]}, now),
    )


def rolling(now: float) -> World:
    """One endpoint in the middle of a rollout."""
    began = 780
    parts = [
        Traffic("3", Arm.STABLE, rate=36),
        Traffic("4", Arm.SHADOW, begin=began, end=began - 240, slow=0.8),
        Traffic("4", Arm.CANARY, rate=6, begin=began - 240, slow=0.8),
    ]
    return World(
        (endpoint("sentiment", on_its_way(now)),),
        board(
            {"sentiment": parts},
            now,
            drifts={"sentiment": [drift("4", now, calibration=0.4), drift("3", now)]},
        ),
    )


def gone_back(now: float) -> World:
    """One endpoint after a rollback."""
    began = 780
    parts = [
        Traffic("3", Arm.STABLE, rate=36),
        Traffic("4", Arm.SHADOW, begin=began, end=began - 240, slow=0.8),
        Traffic("4", Arm.CANARY, rate=6, begin=began - 240, end=120, errors=0.05, slow=1.4),
    ]
    return World(
        (endpoint("sentiment", rolled_back(now)),),
        board({"sentiment": parts}, now),
    )


def drifted(now: float) -> World:
    """One endpoint whose texts changed six minutes ago."""
    factor = {"tokens": 5.0, "words": 5.2, "tokens_per_word": 9.0, "unk_share": 7.0, "score": 2.2}
    return World(
        (endpoint("sentiment", serving("3", now)),),
        board(
            {"sentiment": [Traffic("3", Arm.STABLE, changed_from=360, own=True)]},
            now,
            drifts={"sentiment": [drift("3", now, factor=factor)]},
        ),
    )


def untouched(now: float) -> World:
    """One endpoint that serves, and nobody ever asked it."""
    return World(
        (endpoint("sentiment", serving("1", now)),),
        Board(now, now - 60, 0.0, connected=True),
    )


def preparing(now: float) -> World:
    """An endpoint whose first version is being converted."""
    candidate = Candidate(version="1", phase=Phase.VERIFYING, reason="compared over 128 texts")
    status = EndpointStatus(
        candidate=candidate,
        history=(Transition(at=now - 40, version="1", phase=Phase.CONVERTING),),
    )
    return World((endpoint("sentiment", status),), Board(now, now - 60, 0.0, connected=True))


def empty(now: float) -> World:
    """Nothing at all, and Kafka away."""
    return World((), Board(now, now - 60, 0.0, connected=False))


def many(now: float, count: int = 12) -> World:
    """Many endpoints in all states."""
    worlds = (rolling(now), quiet(now), gone_back(now), drifted(now), preparing(now))
    endpoints, boards = [], {}
    tasks = ("sentiment", "toxicity-filter", "intent-router", "product-search", "ticket-triage")
    for number in range(count):
        world = worlds[number % len(worlds)]
        name = f"{tasks[number % len(tasks)]}-{number // len(tasks) + 1}"
        source = world.endpoints[0]
        metadata = source.metadata.model_copy(update={"name": name})
        endpoints.append(source.model_copy(update={"metadata": metadata}))
        known = world.board.of("sentiment")
        if known.series:
            boards[name] = replace(
                known, name=name, series=tuple(replace(s, endpoint=name) for s in known.series)
            )
    return World(
        tuple(endpoints), Board(now, now - 1500, now - 8, connected=True, by_endpoint=boards)
    )


def embedding(now: float) -> World:
    """One endpoint that answers with vectors."""
    status = serving("2", now).model_copy(update={"task": Task.TEXT_EMBEDDING})
    return World(
        (endpoint("product-search", status),),
        board({"product-search": [Traffic("2", Arm.STABLE, embedding=True)]}, now),
    )


HOSTILE = "<img src=x onerror=window.__broken=1>\"'</script><b>&amp;\u202e\x00"


def hostile(now: float) -> World:
    """A rollout in which everything that users can name is markup."""
    world = rolling(now)
    source = world.endpoints[0]
    status = source.status
    assert status.rollout is not None
    assert status.candidate is not None
    named = {"reason": HOSTILE, "by": HOSTILE}
    status = status.model_copy(
        update={
            "candidate": status.candidate.model_copy(update={"reason": HOSTILE}),
            "notes": (HOSTILE,),
            "history": tuple(line.model_copy(update=named) for line in status.history),
            "rollout": status.rollout.model_copy(
                update={
                    "checks": tuple(
                        check.model_copy(update={"reason": HOSTILE, "name": HOSTILE})
                        for check in status.rollout.checks
                    )
                }
            ),
        }
    )
    made = source.model_copy(
        update={"status": status, "spec": source.spec.model_copy(update={"model": HOSTILE})}
    )
    labels = {HOSTILE: 0.5, "positive": 0.5}
    known = board(
        {
            "sentiment": [
                Traffic("3", Arm.STABLE, labels=labels),
                Traffic("4", Arm.CANARY, rate=6, labels=labels),
            ]
        },
        now,
    )
    held = known.of("sentiment")
    origins = tuple(
        replace(origin, data_sets=(HOSTILE,), run_id=HOSTILE) for origin in held.origins
    )
    drifts = tuple(
        replace(
            item,
            reference=replace(item.reference, source=HOSTILE),
            statistics=tuple(
                replace(one, statistic=f"own:{HOSTILE}", bins=(HOSTILE,) * len(one.bins))
                for one in item.statistics
            ),
        )
        for item in held.drift
    )
    held = replace(held, origins=origins, drift=drifts, refusals={HOSTILE: 3})
    return World((made,), replace(known, by_endpoint={"sentiment": held}))


WORLDS = {
    "quiet": quiet,
    "rolling": rolling,
    "gone-back": gone_back,
    "drifted": drifted,
    "untouched": untouched,
    "preparing": preparing,
    "empty": empty,
    "many": many,
    "embedding": embedding,
    "hostile": hostile,
}
