"""``python -m registry.convert REQUEST.json RESULT.json``: one conversion, in a process of its own.

It prints progress as one JSON object a line on standard output, writes its result into the second
file, both as ``registry.conversions.messages`` says, and logs on standard error. Limits of memory
and time are the launcher's. A failure that it foresees ends in ``ConversionFailure`` and exit
status 0; a crash ends without a result.
"""

import os
import sys
from pathlib import Path

from contracts.endpoint import Phase
from contracts.model import workspace_of
from registry.conversions.messages import (
    ConversionFailure,
    ConversionProgress,
    ConversionRequest,
    PublishedPackage,
    result_file,
)
from registry.convert.errors import ConversionError, find_machine_fault
from service import logs

_THREAD_SETTINGS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def main(arguments: list[str]) -> int:
    """Runs the request in the first file that ``arguments`` names; returns the exit status."""
    if len(arguments) != 2:
        print("usage: python -m registry.convert REQUEST.json RESULT.json", file=sys.stderr)
        return 2
    request = ConversionRequest.model_validate_json(Path(arguments[0]).read_bytes())
    _prepare_process(request.threads)
    Path(arguments[1]).write_bytes(result_file(_result(request)))
    return 0


def _result(request: ConversionRequest) -> PublishedPackage | ConversionFailure:
    # Imported only now, so that thread settings hold for the libraries' start.
    from registry.convert.tracking import TrackingServer  # noqa: PLC0415
    from registry.convert.walk import convert  # noqa: PLC0415
    from registry.packages.store import PackageStore, StoreError  # noqa: PLC0415

    try:
        tracking = TrackingServer(
            request.tracking_uri, sources=request.sources, workspace=workspace_of(request.model)
        )
        store = PackageStore(request.store_url, write_only=True)
        return PublishedPackage(ref=convert(request, tracking, store, _report))
    except ConversionError as error:
        if error.bounded or (error.by_version and find_machine_fault(error) is not None):
            return sys.exit(error.reason)  # as after a crash: tried again, but not for ever
        return ConversionFailure(
            reason=error.reason, by_version=error.by_version, needs_export=error.needs_export
        )
    except StoreError as error:
        return ConversionFailure(reason=str(error), by_version=False)
    except MemoryError:  # of the machine: the limit of a conversion ends it from outside
        return sys.exit("the conversion found no more memory")
    except OSError as error:
        # The scratch folder is all that is left to fail here: a full disk, most often.
        return ConversionFailure(reason=f"conversion's scratch folder: {error}", by_version=False)


def _prepare_process(threads: int) -> None:
    for name in _THREAD_SETTINGS:
        os.environ[name] = str(threads)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.environ["HF_HUB_OFFLINE"] = "1"  # nothing is ever downloaded from a model hub
    logs.configure("conversion", "info")


def _report(phase: Phase, message: str) -> None:
    line = ConversionProgress.model_validate({"phase": phase, "message": message[:500]})
    sys.stdout.write(line.model_dump_json() + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
