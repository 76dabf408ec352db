"""What may be said anywhere on the line, for every command alike: where it works, how it prints.

The command line takes it from before and behind the command's name; the last one counts.
"""

from contextvars import ContextVar
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path


class Form(StrEnum):
    """How results are printed."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    WIDE = "wide"  # a table with all details
    NAME = "name"  # nothing but names, a line each


@dataclass(frozen=True, slots=True)
class Invocation:
    """One run of the program.

    Attributes:
        namespace: of a cluster; None: the context's own, or no cluster at all.
        context: of the kubeconfig; None: the current one.
        kubeconfig: the file in place of those that the environment names; None: those.
        form: None where nobody chose one.
        is_plugin: kubectl runs the program, so that no local stack is meant.
    """

    namespace: str | None = None
    context: str | None = None
    kubeconfig: Path | None = None
    form: Form | None = None
    is_plugin: bool = False

    @property
    def in_cluster(self) -> bool:
        """Whether it is about a cluster, not about the home of a local stack."""
        named = (self.namespace, self.context, self.kubeconfig)
        return self.is_plugin or any(each is not None for each in named)

    @property
    def is_structured(self) -> bool:
        """Whether programs read the result."""
        return self.form in {Form.JSON, Form.YAML, Form.NAME}


_current: ContextVar[Invocation] = ContextVar("invocation")


def begin(*, is_plugin: bool) -> None:
    """Another run begins: nothing has been said yet."""
    _current.set(Invocation(is_plugin=is_plugin))


def current() -> Invocation:
    """What was said so far."""
    return _current.get(Invocation())


def say(
    namespace: str | None = None,
    context: str | None = None,
    kubeconfig: Path | None = None,
    form: Form | None = None,
) -> Invocation:
    """Takes what was said now, None for nothing; returns all that holds by now."""
    before = current()
    after = replace(
        before,
        namespace=namespace or before.namespace,
        context=context or before.context,
        kubeconfig=kubeconfig or before.kubeconfig,
        form=form or before.form,
    )
    _current.set(after)
    return after
