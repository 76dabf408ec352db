"""Objects in a folder of JSON files, one each, as they are now. It never writes.

A file that can't be read keeps its last good object, a folder that is away keeps them all; both are
logged once.
"""

import logging
import threading
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import BaseModel, ValidationError

from service import json_files
from service.json_files import Stamp

log = logging.getLogger(__name__)

M = TypeVar("M", bound=BaseModel)


class ObjectFiles(Generic[M]):
    """One JSON file an object. Threads may share it.

    Args:
        folder: need not exist yet.
        kind: of the objects.
        name: of the kind, for the log, as in ``an endpoint``.
    """

    def __init__(self, folder: Path, kind: type[M], name: str) -> None:
        self._folder = folder
        self._kind = kind
        self._name = name
        self._lock = threading.Lock()  # of the next two
        self._read: dict[str, tuple[Stamp, M | None]] = {}
        self._away = False

    def __call__(self) -> tuple[M, ...]:
        """Every object, by the name of its file; cheap if nothing changed."""
        with self._lock:
            try:
                stamps = json_files.stamps(self._folder)
            except OSError as error:
                if not self._away:
                    log.warning("a folder is away", extra={"of": self._name, "reason": str(error)})
                self._away = True
            else:
                self._away = False
                self._look(stamps)
            ordered = [self._read[file][1] for file in sorted(self._read)]
        return tuple(found for found in ordered if found is not None)

    def _look(self, stamps: dict[str, Stamp]) -> None:
        for gone in self._read.keys() - stamps.keys():
            del self._read[gone]
        for file, stamp in stamps.items():
            seen, last = self._read.get(file, (None, None))
            if seen == stamp:
                continue
            try:
                last = self._kind.model_validate_json((self._folder / file).read_bytes())
            except (OSError, ValidationError) as error:
                log.warning(
                    "%s can't be read; its last good state stays",
                    self._name,
                    extra={"file": file, "reason": str(error)},
                )
            self._read[file] = (stamp, last)
