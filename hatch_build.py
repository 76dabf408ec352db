"""Adds to the wheel what is no Python source; hatchling calls it while it builds one.

Data files always; and where ``HEADRACE_COMPILE`` is 1 in the environment, the gateway's hot modules
as machine code, which mypyc makes of the same source (``docs/decisions/0038-compiled-modules.md``).
The source is in such a wheel too: Python takes it wherever the compiled module does not fit.

An editable install gets none of it: data folders in site-packages would hide the packages of this
checkout that have the same names, and compiled modules its source. It gets a way to import
``bench``, which is in no wheel.
"""

import os
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FILES = {
    "triton": "registry/loading/triton_files",
    "examples/sentiment": "headrace/example",
    "locks/triton.txt": "headrace/locks/triton.txt",
    "locks/export.txt": "headrace/locks/export.txt",
}

# What every request passes. Not among them: modules that declare msgspec structs or pydantic
# models, which mypyc can't compile, those with classes that build on other packages', and tasks'
# heads, on which packages from outside build theirs.
COMPILED = (
    "gateway/admission/controller.py",
    "gateway/admission/early_refusals.py",
    "gateway/admission/rate_limits.py",
    "gateway/admission/request_scheduler.py",
    "gateway/admission/token_budget.py",
    "gateway/batching/batcher.py",
    "gateway/batching/cost_model.py",
    "gateway/batching/jobs.py",
    "gateway/batching/lag.py",
    "gateway/batching/packed_costs.py",
    "gateway/batching/packed_schedule.py",
    "gateway/batching/schedule.py",
    "gateway/batching/waiting_rows.py",
    "gateway/engine/fleet.py",
    "gateway/engine/http2/connection.py",
    "gateway/engine/protocol.py",
    "gateway/engine/triton.py",
    "gateway/events/buffer.py",
    "gateway/events/outbox.py",
    "gateway/http/body.py",
    "gateway/http/messages.py",
    "gateway/http/plain_post.py",
    "gateway/http/router.py",
    "gateway/inference/answer_cache.py",
    "gateway/inference/attempt.py",
    "gateway/inference/encoding.py",
    "gateway/inference/pipeline.py",
    "gateway/inference/serving.py",
    "gateway/request_context.py",
    "gateway/routing/routes.py",
    "gateway/telemetry/metrics.py",
    "preprocess/buckets.py",
    "preprocess/encoder.py",
    "preprocess/frame.py",
    "preprocess/labelled_words.py",
    "preprocess/late_interaction.py",
    "preprocess/observe.py",
    "preprocess/packing.py",
    "preprocess/padding.py",
    "preprocess/scores.py",
    "preprocess/windows.py",
    "preprocess/words.py",
)
# Python runs this line of a .pth file as it starts. The finder is the editable wheel's own.
WAY_TO_BENCH = (
    "import editables.redirector as r; r.RedirectingFinder.map_module('bench', {path!r})\n"
)
# The latter four for their types: a class on a base of unknown type would be laid out wrong, and
# the process that uses it would crash. mypy is told to refuse any such class.
_COMPILER = ["mypy", "setuptools", "msgspec", "numpy", "prometheus-client", "pydantic"]
MYPY = (
    "--config-file=",
    "--ignore-missing-imports",
    "--explicit-package-bases",
    "--disallow-subclassing-any",
    "--disable-error-code=call-arg",  # pydantic's defaults are not seen without its plugin
)


class Additions(BuildHookInterface):
    """Where each of ``FILES`` and each compiled module lies in an installed Headrace."""

    def dependencies(self) -> list[str]:
        """What the build needs besides hatchling."""
        return _COMPILER if _compiles() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Adds the files to a standard wheel, and ``bench`` to an editable one."""
        if version != "standard":
            self._work = tempfile.TemporaryDirectory(prefix="headrace-editable-")
            way = Path(self._work.name) / "way.pth"
            way.write_text(WAY_TO_BENCH.format(path=str(Path(self.root) / "bench/__init__.py")))
            build_data["force_include_editable"][str(way)] = "headrace_bench.pth"
            return
        build_data["force_include"].update(FILES)
        if _compiles():
            self._work = tempfile.TemporaryDirectory(prefix="headrace-compiled-")
            build_data["force_include"].update(_compile(Path(self.root), Path(self._work.name)))
            build_data["pure_python"] = False
            build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Removes what was made for the wheel, once it is in it."""
        del version, build_data, artifact_path
        if (work := getattr(self, "_work", None)) is not None:
            work.cleanup()


def _compiles() -> bool:
    return os.environ.get("HEADRACE_COMPILE", "") == "1"


def _compile(root: Path, work: Path) -> dict[str, str]:
    """Compiles; gives where each module was built, and its place in the wheel."""
    # They are there only where ``dependencies`` asks for them.
    from mypyc.build import mypycify  # noqa: PLC0415
    from setuptools import Distribution  # noqa: PLC0415
    from setuptools.command.build_ext import build_ext  # noqa: PLC0415

    os.chdir(root)  # mypyc names modules by their paths from here
    options = [*MYPY, f"--cache-dir={work / 'cache'}"]
    extensions = mypycify(
        [*options, *COMPILED], target_dir=str(work / "c"), group_name="headrace", debug_level="0"
    )
    command = build_ext(Distribution({"name": "headrace", "ext_modules": extensions}))
    command.build_lib, command.build_temp = str(work / "lib"), str(work / "objects")
    command.ensure_finalized()
    command.run()
    built = (work / "lib").rglob("*.so")
    return {str(path): str(path.relative_to(work / "lib")) for path in built}
