"""A file system in memory whose process is killed at some operation that writes or removes.

``reset`` says before which one; counted from 1, and never at 0.
"""

from typing import Any, ClassVar

from fsspec.implementations.memory import MemoryFileSystem
from fsspec.registry import register_implementation


class KilledError(BaseException):
    """Nothing of the program runs after it."""


class DyingFiles(MemoryFileSystem):  # type: ignore[misc]
    """As ``MemoryFileSystem``, which keeps all in one place, under an URL ``dying://``."""

    protocol = "dying"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    dies_at: ClassVar[int] = 0
    count: ClassVar[int] = 0

    @classmethod
    def reset(cls, dies_at: int = 0) -> None:
        cls.dies_at, cls.count = dies_at, 0

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(MemoryFileSystem._strip_protocol(path.replace("dying://", "memory://")))

    def _step(self) -> None:
        cls = type(self)
        cls.count += 1
        if cls.count == cls.dies_at:
            raise KilledError

    def put_file(self, *args: Any, **kwargs: Any) -> None:
        self._step()
        super().put_file(*args, **kwargs)

    def pipe_file(self, *args: Any, **kwargs: Any) -> None:
        self._step()
        super().pipe_file(*args, **kwargs)

    def rm_file(self, path: str) -> None:
        self._step()
        super().rm_file(path)

    def _rm(self, path: str) -> None:
        self._step()
        super()._rm(path)


register_implementation("dying", DyingFiles, clobber=True)
