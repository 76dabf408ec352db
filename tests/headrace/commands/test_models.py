from contracts.endpoint import (
    Arm,
    Candidate,
    EndpointSpec,
    EndpointStatus,
    Metadata,
    ModelEndpoint,
    Phase,
    Rejection,
    Route,
)
from contracts.model import ModelRef
from headrace.commands.models import VersionLine, join


def ref(version: str) -> ModelRef:
    return ModelRef(model="tone", version=version, package=version.rjust(64, "0"))


def endpoint(status: EndpointStatus) -> ModelEndpoint:
    return ModelEndpoint(
        metadata=Metadata(name="mood"), spec=EndpointSpec(model="tone"), status=status
    )


def test_a_version_of_a_model_without_an_endpoint_is_registered() -> None:
    assert join([("tone", "1")], []) == [VersionLine("tone", "1", None, "Registered")]


def test_every_version_says_what_became_of_it() -> None:
    status = EndpointStatus(
        routes=(Route(arm=Arm.STABLE, ref=ref("2"), weight=100),),
        packages=(ref("1"), ref("2")),
        candidate=Candidate(version="4", phase=Phase.CONVERTING, reason="exporting"),
        rejected=(Rejection(version="3", options="o", reason="a pickle", at=1.0),),
    )
    versions = [("tone", number) for number in "54321"]
    found = {line.version: (line.state, line.reason) for line in join(versions, [endpoint(status)])}
    assert found == {
        "5": ("Registered", ""),
        "4": ("Converting", "exporting"),
        "3": ("Rejected", "a pickle"),
        "2": ("Serving", ""),
        "1": ("Held", ""),
    }


def test_a_share_of_the_callers_is_told() -> None:
    routes = (
        Route(arm=Arm.STABLE, ref=ref("1"), weight=95),
        Route(arm=Arm.CANARY, ref=ref("2"), weight=5),
    )
    lines = join([("tone", "2"), ("tone", "1")], [endpoint(EndpointStatus(routes=routes))])
    assert [line.state for line in lines] == ["Serving 5 % (canary)", "Serving 95 % (stable)"]


def test_a_version_that_answers_nobody_but_copies_is_not_said_to_serve() -> None:
    routes = (
        Route(arm=Arm.STABLE, ref=ref("1"), weight=100),
        Route(arm=Arm.SHADOW, ref=ref("2"), weight=100),
    )
    candidate = Candidate(version="2", phase=Phase.SHADOW, reason="waits", ref=ref("2"))
    status = EndpointStatus(routes=routes, candidate=candidate)
    (line,) = join([("tone", "2")], [endpoint(status)])
    assert (line.state, line.reason, line.package) == ("Shadow", "waits", ref("2").package)
