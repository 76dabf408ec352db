"""The words that two parts of Headrace share.

Everything that passes between services is declared here: references to model versions, tensors,
the endpoint object, package manifests, prediction events, the names of statistics and of metrics.
Every other package imports this one; it imports none of them, and it does no I/O.
"""

import os

from contracts.telemetry_off import VARIABLES

# Here, because every process of ours imports this before any library that reads them.
os.environ.update(VARIABLES)
