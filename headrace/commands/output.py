"""How the commands print: JSON for scripts, rich text for people."""

import json
import sys
from typing import Any

from rich.console import Console

console = Console()


def print_json(value: Any) -> None:  # noqa: ANN401 - any JSON value
    """Writes one JSON document on standard output, untouched by terminal width or colour."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")
