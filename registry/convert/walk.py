"""The way of one model version, from the registry to a published package.

Read ``convert`` downwards: download, recognise, and go the way of the kind of model that it is:
``tables`` with its pyfuncs, ``generation``, ``packed`` or ``padded``, with ``steps`` in common. It
keeps nothing between two conversions, and writes only to the scratch folder and the store.
"""

import logging
from pathlib import Path

from contracts.endpoint import EngineChoice, Phase
from contracts.model import ModelRef
from preprocess.model_code import archive
from registry.conversions.messages import ConversionRequest
from registry.convert import generation, packed, padded, tables
from registry.convert.download import fetch, recognise, with_pickles
from registry.convert.errors import VersionError, refuse_panics
from registry.convert.forms import FORMS
from registry.convert.steps import Report, require_no_packed
from registry.convert.tracking import TrackingServer
from registry.packages.store import PackageStore

log = logging.getLogger(__name__)


@refuse_panics()
def convert(
    request: ConversionRequest, tracking: TrackingServer, store: PackageStore, report: Report
) -> ModelRef:
    """Makes and publishes the package of one version.

    Raises:
        ConversionError: there will be no package, and whose fault that is.
        registry.packages.store.StoreError: the store can't be written.
    """
    work = Path(request.work_dir)
    report(Phase.CONVERTING, f"downloading version {request.version} of {request.model}")
    fetched = fetch(request, tracking, work)
    table = tables.find(fetched, request)
    if table is not None:
        require_no_packed(request, "a model of tables")
        if archive.brings_code(fetched.folder):
            raise VersionError(
                f"it brings {archive.FOLDER}/{archive.MODULE}.py, which goes with models of texts; "
                "a model of tables does its own work around the model in a pyfunc"
            )
        if table.flavour == tables.PYFUNC:
            return tables.convert_pyfunc(
                request, with_pickles(fetched, tracking), table, store, report
            )
        return tables.convert(request, fetched, table, store, report)
    downloaded = recognise(fetched, request)
    original = downloaded.original
    report(Phase.CONVERTING, f"preparing the {original.flavour} model")
    if FORMS[original.task].generates:
        return generation.convert(request, downloaded, work, store, report)
    given_up = ""
    if packed.is_wanted(request):
        try:
            return packed.convert(request, downloaded, work, store, report)
        except VersionError as error:
            if request.serving.engine is EngineChoice.PACKED:
                raise
            given_up = error.reason
            log.info("no packed engine", extra={"reason": given_up})
    return padded.convert(request, downloaded, work, store, report, given_up=given_up)
