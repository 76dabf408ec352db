"""``headrace delete``: removes an endpoint, and says what that means for its callers."""

import sys

import typer

from contracts.endpoint import ModelEndpoint
from headrace.commands import home as homes
from headrace.commands.home import Where
from headrace.commands.output import console, print_json
from headrace.endpoints import edits
from headrace.errors import BrokenHomeError, RefusedError


def run(where: Where, name: str, *, sure: bool, as_json: bool) -> None:
    """Removes an endpoint after asking.

    Raises:
        NotRunningError: there is no such home, or no way to the cluster.
        RequestFailedError: there is no such endpoint.
        RefusedError: nobody said yes.
        BrokenHomeError: it can't be removed.
    """
    site = homes.site(where)
    store = site.store
    unreadable = ""
    try:
        endpoint = edits.existing(store, name)
        said = consequences(endpoint, edits.every(store), auto_endpoints=site.auto_endpoints)
    except BrokenHomeError as error:
        # An endpoint that can't be read is to be got rid of all the same.
        unreadable = error.message
        said = [f"What is stored of the endpoint {name} can't be read; its history is lost."]
    if not sure:
        _ask(name, said)
    try:
        store.delete(name)
    except OSError as error:
        raise BrokenHomeError(f"The endpoint {name} can't be removed: {error}.") from error
    if as_json:
        print_json({"deleted": name, "notes": said, "unreadable": bool(unreadable)})
        return
    console.print(f"endpoint {name} deleted", highlight=False)
    if sure:
        for line in said:
            console.print(f"  {line}", markup=False, highlight=False, soft_wrap=True)


def consequences(
    endpoint: ModelEndpoint, endpoints: tuple[ModelEndpoint, ...], *, auto_endpoints: bool
) -> list[str]:
    """What follows from deleting it, a sentence each.

    Args:
        endpoint: what is to go.
        endpoints: all there are.
        auto_endpoints: whether models without an endpoint are given one.
    """
    status = endpoint.status
    lines = []
    if status.stable is not None:
        lines.append(
            f"Callers of {endpoint.name} get 404 from then on; version {status.stable.version} "
            "is unloaded where nothing else needs it."
        )
    if status.rollout is not None:
        lines.append(f"The rollout of version {status.rollout.candidate.version} ends unjudged.")
    if status.rejected or status.history:
        lines.append("Its history and its list of rejected versions go with it.")
    model = endpoint.spec.model
    others = [
        each.name for each in endpoints if each.spec.model == model and each.name != endpoint.name
    ]
    if auto_endpoints and not others:
        lines.append(
            f"While {model} is registered in MLflow it comes back with defaults, since this stack "
            "makes an endpoint for every model that has none. To stop that, start the stack with "
            "headrace up --no-auto-endpoints, or delete the registered model."
        )
    return lines


def _ask(name: str, said: list[str]) -> None:
    for line in said:
        sys.stderr.write(f"{line}\n")
    if not sys.stdin.isatty():
        raise RefusedError(f"The endpoint {name} was not deleted: say so with --yes.")
    if not typer.confirm(f"Delete the endpoint {name}?", err=True):
        raise RefusedError(f"The endpoint {name} was not deleted.")
