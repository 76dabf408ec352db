"""What may be said anywhere on the line, for every command: where it works, how it prints.

The command line takes it from before and behind the command's name; the last one counts.
"""

from contextvars import ContextVar
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path


class OutputFormat(StrEnum):
    """How results are printed."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


@dataclass(frozen=True, slots=True)
class Invocation:
    """One run of the program.

    Attributes:
        namespace: of a cluster; None: the context's own, or no cluster at all.
        context: of the kubeconfig; None: the current one.
        kubeconfig: the file in place of those that the environment names; None: those.
        form: None if nobody chose one.
        is_plugin: kubectl runs the program, so that no local stack is meant.
    """

    namespace: str | None = None
    context: str | None = None
    kubeconfig: Path | None = None
    form: OutputFormat | None = None
    is_plugin: bool = False

    @property
    def in_cluster(self) -> bool:
        """Whether it is about a cluster, not about the home of a local stack."""
        named = (self.namespace, self.context, self.kubeconfig)
        return self.is_plugin or any(each is not None for each in named)


_current: ContextVar[Invocation] = ContextVar("invocation")


def begin(*, is_plugin: bool) -> None:
    """Another run begins: nothing has been said yet."""
    _current.set(Invocation(is_plugin=is_plugin))


def current() -> Invocation:
    """What was said so far."""
    return _current.get(Invocation())


def is_structured() -> bool:
    """Whether programs read the result."""
    return current().form in {OutputFormat.JSON, OutputFormat.YAML}


def say(
    namespace: str | None = None,
    context: str | None = None,
    kubeconfig: Path | None = None,
    form: OutputFormat | None = None,
) -> None:
    """Takes what was said now, None for nothing."""
    before = current()
    _current.set(
        replace(
            before,
            namespace=namespace or before.namespace,
            context=context or before.context,
            kubeconfig=kubeconfig or before.kubeconfig,
            form=form or before.form,
        )
    )
