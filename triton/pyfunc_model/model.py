"""A Triton model that answers with a version's pyfunc, for models that are Python of their users'.

None of that Python runs in this process, which Triton's own library shares memory with: it asks a
process that runs with the version's packages and is closed off. Beside this file lie the archive
of model and packages, ``pyfunc.json`` with what the loader says of it, and the files that ask, run
and close off (``registry/loading/placement.py`` puts them there).

Rows come as float64 ``[batch, features]``; answers leave as float32 ``[batch, width]``. A failure
is its own request's; a process that hangs or ends is started again, and calls meanwhile fail. The
loader's probe, a request of the id ``PROBE``, is told for some minutes why the process of any copy
ended last: rows that do no harm would not show it.
"""

import json
import os
import shutil
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyfunc_archive
import pyfunc_process
import triton_python_backend_utils as pb_utils
from python_model import THREADS, Heartbeat, output

ARCHIVE, SPEC, UNPACKED = "pyfunc.zip", "pyfunc.json", "pyfunc"
ENDED = "pyfunc.ended"  # why the process of a copy ended last, and when
PROBE = "headrace-probe"  # as ``registry/loading/triton_client.py`` has it
TOLD_SECONDS = 600.0


class TritonPythonModel:
    """One instance."""

    def initialize(self, args: dict[str, str]) -> None:
        """Opens the model; an exception here is the reason that Triton gives for refusing."""
        config = json.loads(args["model_config"])
        (self.input,) = [spec["name"] for spec in config["input"]]
        ((self.output, self.width),) = [
            (spec["name"], int(spec["dims"][-1])) for spec in config["output"]
        ]
        threads = int(config.get("parameters", {}).get(THREADS, {}).get("string_value", "1"))
        folder = Path(args["model_repository"]) / args["model_version"]
        spec = json.loads((folder / SPEC).read_text(encoding="utf-8"))
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        if spec["python"] != python:
            raise RuntimeError(
                f"its packages are of Python {spec['python']}, and this Triton runs Python {python}"
            )
        self.labels = spec["labels"]
        files = folder / UNPACKED
        pyfunc_archive.unpack(folder / ARCHIVE, files, spec["bytes"])
        limits = pyfunc_process.PyfuncLimits(**spec["limits"])
        told = {
            "model": str(files / pyfunc_archive.MODEL),
            "site": str(files / pyfunc_archive.SITE),
            "sandbox": str(folder / "pyfunc_sandbox.py"),
            "memory_bytes": limits.megabytes * 1_000_000,
            "categories": spec["categories"],
            "example": spec["example"],
        }
        # The same one from whose packages this process was started.
        interpreter = shutil.which("python3") or sys.executable
        worker = [interpreter, "-I", "-S", "-B", str(folder / "pyfunc_worker.py")]
        self.ended = folder / ENDED
        self.process = pyfunc_process.PyfuncProcess(
            worker, told, limits, threads=threads, ended=self._note
        )
        self.process.start()
        self.heartbeat = Heartbeat()
        self.heartbeat.start()

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answers every request, in order; a failure is the failure of its own request only."""
        self.heartbeat.check()
        responses = [self._response(request) for request in requests]
        self.heartbeat.check()
        return responses

    def finalize(self) -> None:
        """Ends the process before Triton reports the model as gone."""
        self.heartbeat.stop()
        self.process.close()

    def _response(self, request: "pb_utils.InferenceRequest") -> "pb_utils.InferenceResponse":
        if request.request_id() == PROBE and (why := self._read_why_ended()):
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(f"engine: {why}"))
        rows = np.from_dlpack(pb_utils.get_input_tensor_by_name(request, self.input))
        try:
            values = self.process.answers(rows).values(self.labels, self.width)
        except pyfunc_process.PyfuncError as error:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(f"engine: {error}"))
        return pb_utils.InferenceResponse([output(self.output, values)])

    def _note(self, why: str) -> None:
        """Keeps why the process ended, for the probe, which may reach another copy."""
        aside = self.ended.with_name(f"{ENDED}.{os.getpid()}")
        with suppress(OSError):  # a full disk fails no request
            aside.write_text(json.dumps({"at": time.time(), "why": why}), encoding="utf-8")
            aside.replace(self.ended)

    def _read_why_ended(self) -> str:
        """Why the process of a copy ended last, if that was lately."""
        try:
            found = json.loads(self.ended.read_text(encoding="utf-8"))
            return str(found["why"]) if abs(time.time() - found["at"]) < TOLD_SECONDS else ""
        except (OSError, ValueError):
            return ""
