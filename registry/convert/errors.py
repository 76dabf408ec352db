"""What can end a conversion without a package.

Raised by ``registry.convert`` and ``registry.convert.flavours``; ``__main__`` turns each into one
``ConversionFailure``. The difference that matters: is the version at fault (never tried again), or
what surrounds it (tried again later)?
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from contracts.gpu_faults import FaultOf, gpu_fault
from preprocess.expressions import is_panic
from registry.pyfunc.process import PyfuncError


class ConversionError(Exception):
    """The root; ``reason`` is a sentence for the person who registered the version."""

    by_version = False
    needs_export = False
    bounded = False  # tried again, but not for ever

    @property
    def reason(self) -> str:
        """The sentence; a name of the version's that is no Unicode is escaped in it."""
        return str(self).encode("utf-8", "backslashreplace").decode()


class VersionError(ConversionError):
    """The version itself is at fault: trying again would end the same way."""

    by_version = True


class EnvironmentFaultError(ConversionError):
    """Something around the conversion is away or missing: trying again may help."""


class SourceGoneError(EnvironmentFaultError):
    """MLflow itself says that it does not have what the version needs: it may be wrong once."""

    bounded = True


class ExportMissingError(EnvironmentFaultError):
    """The version is PyTorch, and torch and transformers are not installed here."""

    needs_export = True


# Of a disk, of what a process may open, or of a device.
_OF_MACHINES = frozenset(
    {
        *(errno.EAGAIN, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENODEV),
        *(errno.ENOMEM, errno.ENOSPC, errno.EROFS, errno.ESTALE),
    }
)


def find_machine_fault(error: BaseException | None) -> BaseException | None:
    """What behind an error is of memory, time, a disk or a GPU, whatever file was at hand.

    Who catches a library's error can't tell: most libraries have one class for all of these.
    """
    while error is not None:
        if isinstance(error, MemoryError | TimeoutError):
            return error
        if isinstance(error, OSError) and error.errno in _OF_MACHINES:
            return error
        own = isinstance(error, ConversionError | PyfuncError)  # words of ours, or of a version
        row = None if own else gpu_fault(str(error))
        if row is not None and row.fault_of is not FaultOf.VERSION:
            return error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return None


def first_line(error: BaseException) -> str:
    """How a library's error begins, for a reason: at most 300 characters of one line."""
    return (str(error).strip().splitlines() or [""])[0][:300] or type(error).__name__


@contextmanager
def refuse_panics() -> Iterator[None]:
    """Says whose fault it is if the tokenisers' library breaks off, which no ``Exception`` is.

    Raises:
        VersionError: in place of a panic.
    """
    try:
        yield
    except BaseException as error:
        if not is_panic(error):
            raise
        raise VersionError(
            f"the tokenisers' library breaks off at this version ({error}): its tokenizer.json "
            "holds what that library can't work with; save the tokeniser again (save_pretrained)"
        ) from error
