"""NeMo Guardrails' rail for classifiers, by a configuration as its users write it."""

import asyncio
import json
import sys

from nemoguardrails import RailsConfig
from nemoguardrails.library.hf_classifier.actions import hf_classifier_check_input

url, asked = sys.argv[1], json.loads(sys.argv[2])
CONFIG = """
rails:
  config:
    hf_classifier:
      guard:
        engine: fms
        model: {endpoint}
        base_url: {url}/endpoints/{endpoint}
        threshold: 0
        blocked_labels: {labels}
  input:
    flows:
      - hf classifier check input $classifier="guard"
"""


async def told(endpoint: str, labels: list[str], text: str) -> str:
    """Whether the text is blocked, or why that can't be said."""
    content = CONFIG.format(endpoint=endpoint, url=url, labels=json.dumps(labels))
    config = RailsConfig.from_content(yaml_content=content)
    context = {"user_message": text}
    try:
        outcome = await hf_classifier_check_input("guard", config=config, context=context)
    except ValueError as error:  # of a rail that ends so, the message is not answered
        return str(error)
    return "blocked" if outcome.is_blocked else "allowed"


async def main() -> None:
    print(json.dumps([await told(**one) for one in asked]))


asyncio.run(main())
