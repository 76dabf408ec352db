"""The gateway: HTTP and gRPC in, batches of tensors out to Triton, an event for every attempt.

``main.py`` builds one process from one settings object; ``inference/pipeline.py`` is the way of one
request.
"""

import os

# gRPC reads it when it is imported. Its preparations for a fork are not needed by processes that
# execute another program at once, and tell of each by a line in the log that is no JSON.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
