"""``headrace schema``: the JSON schema of an endpoint's YAML, for editors."""

from headrace.commands.output import print_json
from headrace.endpoints.schema import endpoint_schema


def run() -> None:
    """Prints the schema."""
    print_json(endpoint_schema())
