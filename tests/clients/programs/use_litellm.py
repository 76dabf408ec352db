"""LiteLLM's generic guardrail, as its proxy makes it of a configuration."""

import asyncio
import json
import sys
from typing import Any

from litellm.exceptions import GuardrailRaisedException
from litellm.proxy.guardrails.guardrail_hooks.generic_guardrail_api import initialize_guardrail
from litellm.types.guardrails import LitellmParams

url, asked = sys.argv[1], json.loads(sys.argv[2])


async def told(one: dict[str, Any]) -> object:
    """The texts that go on, or why none does."""
    params = LitellmParams(
        guardrail="generic_guardrail_api",
        mode="pre_call",
        api_base=f"{url}/endpoints/{one['endpoint']}",
        **one.get("params", {}),
    )
    made = initialize_guardrail(params, {"guardrail_name": "headrace"})
    messages = [{"role": "user", "content": text} for text in one["texts"]]
    inputs = {"texts": one["texts"], "structured_messages": messages, "model": "gpt"}
    if "images" in one:
        inputs["images"] = one["images"]
    data = {"metadata": {"user_api_key_alias": "ada", "headers": {"host": "proxy"}}}
    try:
        kept = await made.apply_guardrail(inputs, data, "request")
    except GuardrailRaisedException as blocked:
        return {"blocked": blocked.message}
    except Exception as error:  # noqa: BLE001 - what LiteLLM makes of all others, if it fails closed
        return {"failed": str(error)}
    return {"texts": kept["texts"]}


async def main() -> None:
    print(json.dumps([await told(one) for one in asked]))


asyncio.run(main())
