"""Calibrations of drift and references learnt from traffic, kept over restarts in one file.

It is the only state that the evaluate role keeps: it comes from days that are not read again.
Without the file every version is calibrated again, and is shown as not calibrated until then.
"""

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from service import durable

log = logging.getLogger(__name__)

SCHEMA_VERSION = 1


class CalibrationFile:
    """One JSON file; without a path nothing is kept."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def load(self) -> Mapping[str, Any]:
        """What was saved last; nothing if that can't be read."""
        if self._path is None:
            return {}
        try:
            found = json.loads(self._path.read_bytes())
            if found["schema_version"] != SCHEMA_VERSION:
                raise ValueError(f"schema version {found['schema_version']} is not known")
            return dict(found["versions"])
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.warning(
                "the drift calibration can't be read; versions are calibrated again",
                extra={"file": str(self._path), "reason": f"{type(error).__name__}: {error}"},
            )
            return {}

    def save(self, calibrations: Mapping[str, Any]) -> None:
        """Keeps it whole or not at all; a failure is logged, for nobody waits for it."""
        if self._path is None:
            return
        document = {"schema_version": SCHEMA_VERSION, "versions": dict(calibrations)}
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            durable.write(self._path, json.dumps(document).encode())
        except OSError as error:
            log.warning(
                "the drift calibration can't be saved",
                extra={"file": str(self._path), "reason": str(error)},
            )
