"""How commands are declared: with the options that all have, and with every error as a sentence.

``App.declare`` gives a command ``--namespace``, ``--context``, ``--kubeconfig`` and ``--output``,
which may stand anywhere on the line, and refuses what it can't do before it begins.
"""

import functools
import inspect
import itertools
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

import typer
from rich.console import Console
from typer.core import TyperGroup
from typer.exceptions import TyperException

from headrace import invocation
from headrace.entry import command_begins
from headrace.errors import (
    DifferentError,
    HeadraceError,
    MachineError,
    RefusedError,
    StoppedError,
)
from headrace.invocation import Form

PLUGIN = "kubectl headrace"
SHARED_PANEL = "Of every command"
_OURS = frozenset(
    {"contracts", "controller", "gateway", "headrace", "measures", "preprocess"}
    | {"registry", "rollout", "service", "stats"}
)
_USAGE = "usage"

Function = TypeVar("Function", bound=Callable[..., None])

errors = Console(stderr=True)


class SentenceGroup(TyperGroup):
    """Prints what goes wrong as a sentence, or as JSON where that was asked for."""

    def make_context(self, info_name: Any, args: Any, parent: Any = None, **extra: Any) -> Any:  # noqa: ANN401 - click's own, which typer brings along
        """Begins to read the line."""
        invocation.begin(is_plugin=info_name == PLUGIN)
        self._wants_json = _wants_json(args)
        try:
            return super().make_context(info_name, args, parent, **extra)
        except TyperException as error:
            if not self._wants_json:
                raise
            self._end(_USAGE, error.format_message(), error.exit_code)

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - click's context, which typer brings along
        """Runs a command."""
        command_begins()
        try:
            return super().invoke(ctx)
        except DifferentError as error:
            raise typer.Exit(error.exit_status) from None
        except HeadraceError as error:
            self._end(error.code, error.message, error.exit_status)
        except KeyboardInterrupt:
            self._end(StoppedError.code, "Stopped.", StoppedError.exit_status)
        except TyperException as error:  # a usage that the command does not know
            if not self._wants_json:
                raise
            self._end(_USAGE, error.format_message(), error.exit_code)
        except ModuleNotFoundError as error:
            if error.name is None or error.name.split(".", 1)[0] in _OURS:
                raise
            self._end(MachineError.code, _missing(error.name), MachineError.exit_status)

    def _end(self, code: str, message: str, status: int) -> NoReturn:
        if self._wants_json:
            said = {"error": {"code": code, "message": message, "exit_status": status}}
            typer.echo(json.dumps(said, ensure_ascii=False), err=True)
        else:
            errors.print(message, style="red", markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(status) from None


def _wants_json(args: Sequence[str]) -> bool:
    """Whether a line asks for JSON or YAML, even one that is wrong elsewhere."""
    words = list(args)
    if "--" in words:
        words = words[: words.index("--")]
    forms = {Form.JSON.value, Form.YAML.value}
    said = {f"-o{form}" for form in forms} | {f"--output={form}" for form in forms} | {"--json"}
    return any(word in said for word in words) or any(
        flag in {"-o", "--output"} and form in forms for flag, form in itertools.pairwise(words)
    )


def _missing(package: str) -> str:
    return (
        f"This command needs the package {package.split('.', 1)[0]}, which the command line alone "
        "does not bring: pip install 'headrace[local]'."
    )


def contexts(context: typer.Context, incomplete: str) -> list[str]:
    """Names of the kubeconfig's contexts, to complete one."""
    from service.cluster import access
    from service.cluster.errors import AccessError

    found = environment(said_so_far(context).get("kubeconfig"))
    try:
        return [name for name in access.contexts(found) if name.startswith(incomplete)]
    except AccessError:
        return []


def namespaces(context: typer.Context, incomplete: str) -> list[str]:
    """Names of the cluster's namespaces; where it won't list them, those of the contexts."""
    from service.cluster import access
    from service.cluster.errors import AccessError, KubernetesError

    said = said_so_far(context)
    found = environment(said.get("kubeconfig"))
    try:
        names = access.connected(found, context=said.get("kube_context")).namespaces()
    except AccessError:
        return []
    except KubernetesError:
        names = access.namespaces_of_contexts(found)
    return [name for name in names if name.startswith(incomplete)]


def said_so_far(context: typer.Context) -> dict[str, Any]:
    """The options on a line that is being completed; what is nearest to its end counts."""
    said: dict[str, Any] = {}
    places = [context]
    while places[-1].parent is not None:
        places.append(places[-1].parent)  # type: ignore[arg-type]
    for place in reversed(places):
        said |= {key: value for key, value in place.params.items() if value}
    return said


def environment(kubeconfig: Path | None = None) -> dict[str, str]:
    """The environment of this process, which the command line reads here alone.

    ``kubeconfig`` is put in place of the files that it names.
    """
    named = {} if kubeconfig is None else {"KUBECONFIG": str(Path(kubeconfig).expanduser())}
    return {**os.environ, **named}


_NAMESPACE = "Work on this namespace of a cluster, not on --home."
Namespace = Annotated[
    str | None,
    typer.Option(
        "--namespace",
        "-n",
        metavar="NAME",
        help=_NAMESPACE,
        autocompletion=namespaces,
        rich_help_panel=SHARED_PANEL,
    ),
]
RootNamespace = Annotated[
    str | None,
    typer.Option(
        "--namespace",
        "-n",
        envvar="HEADRACE_NAMESPACE",
        metavar="NAME",
        help=_NAMESPACE,
        autocompletion=namespaces,
        rich_help_panel=SHARED_PANEL,
    ),
]
KubeContext = Annotated[
    str | None,
    typer.Option(
        "--context",
        metavar="NAME",
        help="Work on the cluster of this context of the kubeconfig.",
        autocompletion=contexts,
        rich_help_panel=SHARED_PANEL,
    ),
]
Kubeconfig = Annotated[
    Path | None,
    typer.Option(
        "--kubeconfig",
        metavar="FILE",
        help="Find clusters in this file, in place of KUBECONFIG or ~/.kube/config.",
        rich_help_panel=SHARED_PANEL,
    ),
]
Output = Annotated[
    Form | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FORM",
        help="How to print: table, json, yaml, wide or name.",
        rich_help_panel=SHARED_PANEL,
    ),
]
_SHARED = {
    "namespace": Namespace,
    "kube_context": KubeContext,
    "kubeconfig": Kubeconfig,
    "output": Output,
}


class App(typer.Typer):
    """Commands that share options."""

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401 - of typer.Typer
        super().__init__(no_args_is_help=True, **settings)
        self.callback()(_with_shared(_nothing, names=True, local=""))

    def declare(
        self,
        name: str | None = None,
        *,
        names: bool = False,
        local: str = "",
        help: str | None = None,  # noqa: A002
    ) -> Callable[[Function], Function]:
        """Declares a command.

        Args:
            name: by default the function's.
            names: whether what it prints has names, for ``-o name``.
            local: why it does nothing in a cluster; empty where it works there.
            help: by default the function's docstring.
        """
        register = self.command(name, help=help)

        def decorate(function: Function) -> Function:
            register(_with_shared(function, names=names, local=local))
            return function

        return decorate


def _nothing() -> None:
    """A group by itself does nothing."""


def _with_shared(function: Callable[..., None], *, names: bool, local: str) -> Callable[..., None]:
    """The function as typer sees it: with the shared options among its own."""

    @functools.wraps(function)
    def run(**given: Any) -> None:  # noqa: ANN401 - a command's arguments
        said = {name: given.pop(name) for name in _SHARED}
        form = Form.JSON if given.get("json") else said["output"]
        now = invocation.say(said["namespace"], said["kube_context"], said["kubeconfig"], form)
        if local and now.in_cluster:
            raise RefusedError(local)
        if now.form is Form.NAME and not names:
            raise typer.BadParameter(
                "this command prints no names; table, json, yaml and wide it knows",
                param_hint="--output",
            )
        if "json" in given:
            given["json"] = now.is_structured
        if "details" in given:
            given["details"] = given["details"] or now.form is Form.WIDE
        function(**given)

    signature = inspect.signature(function, eval_str=True)
    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=option)
        for name, option in _SHARED.items()
    ]
    parameters = [*signature.parameters.values(), *shared]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return run
