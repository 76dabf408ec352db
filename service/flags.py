"""Builds a frozen settings object from command-line flags and the environment.

Called once in each service's main. Every field of a settings class is a flag ``--like-this`` and
an environment variable ``HEADRACE_LIKE_THIS``; the flag wins. A field's help is in its metadata,
with its unit. Nothing else in a service reads the environment.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_origin

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Settings = TypeVar("Settings", bound="DataclassInstance")

_TRUE = {"1", "true", "yes", "on"}
_FALSE = {"0", "false", "no", "off"}


def option(
    default: Any,  # noqa: ANN401 - as dataclasses.field
    text: str,
    *,
    choices: Sequence[str] | None = None,
    read: Callable[[str], Any] | None = None,
) -> Any:  # noqa: ANN401 - as dataclasses.field
    """A field with a default; ``read`` makes its value of what is written, or ValueError."""
    return field(default=default, metadata={"help": text, "choices": choices, "read": read})


def parse(
    settings: type[Settings], argv: Sequence[str], environment: Mapping[str, str], *, program: str
) -> Settings:
    """The settings that the flags and the environment say.

    Args:
        settings: a frozen dataclass whose fields are str, int, float, bool, Path, or tuples of
            str, which are written with commas; or what their ``read`` makes.
        argv: the flags.
        environment: where a flag that is not given is looked for.
        program: the name in ``--help``.

    Raises:
        SystemExit: a flag or variable that can't be read, or a required one that is missing; the
            reason goes to standard error.
    """
    parser = argparse.ArgumentParser(prog=program, description=settings.__doc__)
    for item in fields(settings):
        _add(parser, item, environment)
    values = vars(parser.parse_args(argv))
    for item in fields(settings):  # argparse does not hold what is no flag to the choices
        choices = item.metadata.get("choices")
        if choices and values[item.name] not in choices:
            given = f"{_variable(item)} is {values[item.name]!r}"
            parser.error(f"{given}, not one of {', '.join(choices)}")
    return settings(**values)


def _add(
    parser: argparse.ArgumentParser, item: "Field[Any]", environment: Mapping[str, str]
) -> None:
    variable = _variable(item)
    default = environment.get(variable, None if item.default is MISSING else item.default)
    without = item.default in (MISSING, "", None, ()) or not str(item.default)
    shown = "" if without else f" Default: {item.default}."
    parser.add_argument(
        f"--{item.name.replace('_', '-')}",
        type=_reader(item.metadata.get("read")) or _parser(item.type),
        default=default,
        required=default is None,
        choices=item.metadata.get("choices"),
        help=f"{item.metadata['help']}{shown} Also {variable}.".replace("%", "%%"),
    )


def _variable(item: "Field[Any]") -> str:
    return f"HEADRACE_{item.name.upper()}"


def _parser(kind: Any) -> Any:  # noqa: ANN401 - a type, or what reads one
    if get_origin(kind) is tuple:
        return _words
    return {bool: _bool, Path: _path}.get(kind, kind)


def _reader(read: Callable[[str], Any] | None) -> Callable[[str], Any] | None:
    """With a ValueError's own words in place of argparse's."""
    if read is None:
        return None

    def reader(text: str) -> Any:  # noqa: ANN401 - a field's value
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return reader


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for word in (part.strip() for part in text.split(",")) if word)


def _bool(text: str) -> bool:
    word = text.lower()
    if word not in _TRUE | _FALSE:
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
    return word in _TRUE


def _path(text: str) -> Path:
    return Path(text).expanduser().absolute()
