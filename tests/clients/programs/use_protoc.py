"""protoc compiles the definition that Headrace ships, as clients in any language do."""

import base64
import json
import sys
import tempfile
from pathlib import Path

from grpc_tools import protoc

file = Path(sys.argv[2])
with tempfile.TemporaryDirectory() as work:
    out = Path(work) / "set"
    failed = protoc.main(["protoc", f"-I{file.parent}", f"--descriptor_set_out={out}", file.name])
    print(json.dumps({"failed": failed, "set": base64.b64encode(out.read_bytes()).decode()}))
