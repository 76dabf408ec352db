"""A Triton model that runs rows of several requests together, without padding: for GPUs.

Triton's Python backend starts it in a process of its own. It takes requests as they come and keeps
them: in Triton's default mode ``execute`` may return nothing, and a request is answered once, by
its response sender, from another thread. ``packed_joining`` joins and answers them,
``packed_device`` runs them, ``packed_engine`` is the model. They, ``python_model.py``, the weights
and ``packed.json`` lie beside this file. It never tokenises and never sees a text.

A request has ``input_ids`` int32 ``[T]``, ``row_starts`` int32 ``[n + 1]`` and, if it likes,
``token_type_ids`` uint8 ``[T]``. Its answer is float32 ``[n, width]``, or ``[T, width]`` of tasks
with values for each token.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import triton_python_backend_utils as pb_utils
from packed_counts import COUNTERS, Counts, Exporter
from packed_device import HELD_RUNS, OnCpu, OnGpu, missing_gpu
from packed_engine import SETTINGS_FILE, PackedEngine
from packed_joining import PackedRequest, RunLimits, RunPipeline
from python_model import THREADS, Heartbeat, output

GPU = "GPU"  # Triton's word for the kind of an instance


class TritonPythonModel:
    """One instance."""

    def initialize(self, args: dict[str, str]) -> None:
        """Loads the model; an exception here is the reason that Triton gives for refusing."""
        config = json.loads(args["model_config"])
        folder = Path(args["model_repository"]) / args["model_version"]
        settings = json.loads((folder / SETTINGS_FILE).read_text(encoding="utf-8"))
        threads = config.get("parameters", {}).get(THREADS, {}).get("string_value")
        device = placed_on(args["model_instance_kind"], int(args["model_instance_device_id"]))
        torch.set_num_threads(int(threads or settings["threads"]))
        engine = PackedEngine(folder, settings, device)
        engine.check()
        runner = OnGpu(engine) if engine.device.type == "cuda" else OnCpu(engine)
        if isinstance(runner, OnGpu):
            print(f"{args['model_name']}: {runner.describe()}", file=sys.stderr, flush=True)
        self.heartbeat = Heartbeat()
        counts = Counts()
        self.counters = Counters(args["model_name"], args["model_version"])
        self.exporter = Exporter(counts, self.counters.by_name)
        self.pipeline = RunPipeline(
            runner,
            PackedReplies(config["output"][0]["name"]),
            RunLimits(
                run_tokens=runner.run_tokens,
                run_rows=runner.run_rows,
                held_tokens=HELD_RUNS * runner.run_tokens,
                row_tokens=engine.row_tokens,
                vocabulary=engine.vocabulary,
                types=engine.types,
            ),
            by_token=engine.by_token,
            meter=counts,
            alive=self.heartbeat.check,
        )
        self.heartbeat.start()
        self.exporter.start()
        self.pipeline.start()

    def execute(self, requests: list[Any]) -> None:
        """Takes requests in. Threads answer them; a failure is of its own request only."""
        self.heartbeat.check()
        for request in requests:
            self.pipeline.offer(asked_of(request))

    def finalize(self) -> None:
        """Ends the threads. Triton calls this once all requests are answered."""
        self.pipeline.close()
        self.exporter.stop()
        self.heartbeat.stop()


class Counters:
    """Triton's counters of this model, which begin at 0; none if its metrics are off."""

    def __init__(self, model: str, version: str) -> None:
        labels = {"model": model, "version": version}
        self._families: list[Any] = []  # Triton forgets the counters of a family that is freed
        self.by_name: dict[str, Any] = {}
        try:
            for name, words in COUNTERS.items():
                kind = pb_utils.MetricFamily.COUNTER
                family = pb_utils.MetricFamily(name=name, description=words, kind=kind)
                self._families.append(family)
                self.by_name[name] = family.Metric(labels=labels)
                self.by_name[name].increment(0)
        except Exception as error:  # noqa: BLE001 - Triton's errors have no common base
            print(f"{model}: its counts are not shown: {error}", file=sys.stderr, flush=True)


class PackedReplies:
    """Answers requests by Triton's response senders."""

    def __init__(self, name: str) -> None:
        self._name = name

    def answer(self, asked: PackedRequest, values: np.ndarray) -> None:
        """Sends values."""
        self._send(asked, pb_utils.InferenceResponse([output(self._name, values)]))

    def fail(self, asked: PackedRequest, reason: str) -> None:
        """Sends an error."""
        self._send(asked, pb_utils.InferenceResponse(error=pb_utils.TritonError(reason)))

    def drop(self, asked: PackedRequest) -> None:
        """In the default mode each request needs an answer, even if nobody reads it."""
        self.fail(asked, "engine: its caller is gone")

    def is_gone(self, asked: PackedRequest) -> bool:
        """Whether the caller gave up."""
        return bool(asked.caller.is_cancelled())

    def _send(self, asked: PackedRequest, response: "pb_utils.InferenceResponse") -> None:
        asked.caller.send(response, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)


def placed_on(kind: str, number: int) -> str:
    """The device of an instance, by torch's name for it; refuses a GPU that can't be used."""
    if kind != GPU:
        return "cpu"
    if why := missing_gpu(number):
        raise RuntimeError(f"this instance was promised a GPU and has none: {why}")
    return f"cuda:{number}"


def asked_of(request: "pb_utils.InferenceRequest") -> PackedRequest:
    """What a request brings: copies, since its memory is Triton's."""
    ids, starts, types = _copies(request)
    return PackedRequest(ids, starts, types, caller=request.get_response_sender())


def _copies(request: "pb_utils.InferenceRequest") -> list[Any]:
    """Ids, starts and types; None of those that it has not."""
    return [
        None if given is None else np.from_dlpack(given).copy()
        for given in (
            pb_utils.get_input_tensor_by_name(request, name)
            for name in ("input_ids", "row_starts", "token_type_ids")
        )
    ]
