"""What every command shares: options that may stand anywhere, errors as sentences, what is slow."""

import contextlib
import itertools
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

import typer
from rich.console import Console
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException

from headrace import invocation
from headrace.errors import (
    DifferentError,
    HeadraceError,
    MachineError,
    RefusedError,
    StoppedError,
)
from headrace.interrupt import begin_command
from headrace.invocation import OutputFormat

PLUGIN = "kubectl headrace"
SHARED_PANEL = "Of every command"
_OURS = frozenset(
    {"contracts", "controller", "gateway", "headrace", "measures", "preprocess"}
    | {"registry", "rollout", "service", "stats"}
)
_USAGE = "usage"
SILENT_SECONDS = 1.0  # that a command may take without a word

Function = TypeVar("Function", bound=Callable[..., Any])

errors = Console(stderr=True)
_waits: ContextVar[Callable[[str], None]] = ContextVar("waits", default=lambda _: None)


def _say_missing(package: str) -> str:
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
    """Names of the cluster's namespaces; if it won't list them, those of the contexts."""
    from service.cluster import access
    from service.cluster.errors import AccessError, KubernetesError

    said = said_so_far(context)
    found = environment(said.get("kubeconfig"))
    try:
        names = access.connect(found, context=said.get("kube_context")).namespaces()
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
    """The environment of this process, which the command line reads only here.

    ``kubeconfig`` is put in place of the files that it names.
    """
    named = {} if kubeconfig is None else {"KUBECONFIG": str(Path(kubeconfig).expanduser())}
    return {**os.environ, **named}


def _take_shared_options(
    namespace: Annotated[
        str | None,
        typer.Option(
            "--namespace",
            "-n",
            metavar="NAME",
            help="Work on this namespace of a cluster, not on --home.",
            autocompletion=namespaces,
            rich_help_panel=SHARED_PANEL,
        ),
    ] = None,
    kube_context: Annotated[
        str | None,
        typer.Option(
            "--context",
            metavar="NAME",
            help="Work on the cluster of this context of the kubeconfig.",
            autocompletion=contexts,
            rich_help_panel=SHARED_PANEL,
        ),
    ] = None,
    kubeconfig: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Find clusters in this file, in place of KUBECONFIG or ~/.kube/config.",
            rich_help_panel=SHARED_PANEL,
        ),
    ] = None,
    output: Annotated[
        OutputFormat | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FORM",
            help="How to print: table, json or yaml.",
            rich_help_panel=SHARED_PANEL,
        ),
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="The same as -o json.", rich_help_panel=SHARED_PANEL),
    ] = False,
) -> None:
    form = OutputFormat.JSON if as_json else output
    invocation.say(namespace, kube_context, kubeconfig, form)


_carrier = typer.Typer(add_completion=False)
_carrier.command()(_take_shared_options)


class _WithSharedOptions:
    """Takes the shared options beside its own; stands before a class of typer's."""

    def __init__(self, *args: Any, params: Any = None, **settings: Any) -> None:  # noqa: ANN401
        self._shared = typer.main.get_command(_carrier)
        own = {flag for each in params or () for flag in each.opts}
        for each in _options(self._shared):  # --output of a command's own leaves -o
            each.opts = [flag for flag in each.opts if flag not in own]
        params = [*(params or ()), *_options(self._shared)]
        super().__init__(*args, params=params, **settings)  # type: ignore[call-arg]

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - click's context, which typer brings along
        """Notes what was said, and goes on."""
        _note(self._shared, ctx)
        return super().invoke(ctx)  # type: ignore[misc]

    def get_params(self, ctx: Any) -> Any:  # noqa: ANN401 - click's context, and its options
        """Its options, as help shows them."""
        return _without_types(super().get_params(ctx))  # type: ignore[misc]


class _FirstWord:
    """A stream that calls a function when something is written."""

    def __init__(self, stream: Any, heard: Callable[[], None]) -> None:  # noqa: ANN401 - any stream
        self._stream = stream
        self._heard = heard

    def write(self, text: str) -> int:
        self._heard()
        return int(self._stream.write(text))

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - the stream's own
        return getattr(self._stream, name)


@contextlib.contextmanager
def slow(what: str) -> Iterator[None]:
    """Says on standard error what is waited for, if nothing is written for a second.

    From then on it says each change, of which ``say_wait`` tells.
    """
    lock, told, waited, stream = threading.Lock(), "", what, sys.stderr

    def tell() -> None:
        nonlocal told
        with lock:
            if waited != told:
                told = waited
                stream.write(f"Waiting: {waited} ...\n")
                stream.flush()

    def change(words: str) -> None:
        nonlocal waited
        with lock:
            waited = words
        if told:
            tell()

    timer = threading.Timer(SILENT_SECONDS, tell)
    timer.daemon = True
    before = _waits.set(change)
    out, err = (_FirstWord(each, timer.cancel) for each in (sys.stdout, sys.stderr))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            _waits.reset(before)


def say_wait(what: str) -> None:
    """What the command waits for from now on; see ``slow``."""
    _waits.get()(what)


class _PatientCommand(TyperCommand):
    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - click's context, which typer brings along
        """Runs it; says to people what it waits for."""
        with contextlib.nullcontext() if invocation.is_structured() else slow(ctx.command_path):
            return super().invoke(ctx)


class SharedOptionsCommand(_WithSharedOptions, _PatientCommand):
    """A command."""


class SharedOptionsGroup(_WithSharedOptions, TyperGroup):
    """A group, for what it holds."""


def _without_types(options: Any) -> Any:  # noqa: ANN401 - click's
    """Options of which switches name no type: typer would write that they take a ``<bool>``."""
    for each in options:
        if getattr(each, "is_flag", False):
            each.metavar = ""
    return options


def _options(carrier: Any) -> list[Any]:  # noqa: ANN401 - click's command
    return [each for each in carrier.params if each.name != "help"]


def _note(carrier: Any, context: Any) -> None:  # noqa: ANN401 - click's, which typer brings along
    said = {each.name: context.params.pop(each.name) for each in _options(carrier)}
    carrier.callback(**said)


class SentenceGroup(SharedOptionsGroup):
    """The root: prints what goes wrong as a sentence, or as JSON if that was asked for."""

    def __init__(self, *args: Any, **settings: Any) -> None:  # noqa: ANN401 - of TyperGroup
        super().__init__(*args, **settings)
        for each in self.params:
            if each.name == "namespace":
                each.envvar = "HEADRACE_NAMESPACE"

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
        begin_command()
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
            self._end(MachineError.code, _say_missing(error.name), MachineError.exit_status)

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
    forms = {OutputFormat.JSON.value, OutputFormat.YAML.value}
    said = {f"-o{form}" for form in forms} | {f"--output={form}" for form in forms} | {"--json"}
    return any(word in said for word in words) or any(
        flag in {"-o", "--output"} and form in forms for flag, form in itertools.pairwise(words)
    )


class App(typer.Typer):
    """Commands that share options: those of one file."""

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401 - of typer.Typer
        settings = {"add_completion": False, "cls": SharedOptionsGroup, **settings}
        super().__init__(no_args_is_help=True, **settings)

    def declare(
        self,
        name: str | None = None,
        *,
        help: str | None = None,  # noqa: A002 - as typer calls it
    ) -> Callable[[Function], Function]:
        """Declares a command; its docstring is its help, unless another is given."""
        return self.command(name, cls=SharedOptionsCommand, help=help)


def do_nothing() -> None:
    """What a group does by itself; it also keeps a group of one command a group."""


def refuse_cluster(why: str) -> None:
    """Refuses a command that does nothing in a cluster.

    Raises:
        RefusedError: the line names one.
    """
    if invocation.current().in_cluster:
        raise RefusedError(why)
