"""``headrace predict``: one request to the gateway, in the Hugging Face dialect."""

from collections.abc import Mapping
from typing import Annotated, Any

import httpx
import typer

from headrace.commands.output import console, print_json, table_of
from headrace.errors import NotRunningError, RequestFailedError, sentence_of
from headrace.home import gateway_url
from headrace.invocation import is_structured
from headrace.options import HOME, ApiKey, Endpoint, Gateway, Home, find_place
from headrace.program import App, say_wait

_TIMEOUT_SECONDS = 60.0
_NUMBERS_SHOWN = 4

app = App()


@app.declare()
def predict(
    endpoint: Endpoint,
    texts: Annotated[list[str], typer.Argument(help="Texts to classify or embed.")],
    home: Home = HOME,
    url: Gateway = None,
    key: ApiKey = None,
) -> None:
    """Sends texts to an endpoint and shows its answers."""
    base = gateway_url(find_place(home), url)
    answer = ask_gateway(base, f"/endpoints/{endpoint}", {"inputs": texts}, key)
    if is_structured():
        print_json(answer.json())
        return
    table = table_of("text", "answer")
    for text, result in zip(texts, answer.json(), strict=False):
        table.add_row(_cut_text(text), show(result))
    console.print(table, highlight=False, markup=False)
    console.print(f"version {answer.headers.get('x-headrace-version', '?')}", style="dim")


def ask_gateway(
    base: str,
    path: str,
    body: Mapping[str, Any],
    key: str | None,
    headers: Mapping[str, str] | None = None,
) -> httpx.Response:
    """The answer to one request.

    Raises:
        NotRunningError: no gateway is there.
        RequestFailedError: it refuses, or does not answer.
    """
    say_wait(f"the gateway at {base} has {_TIMEOUT_SECONDS:g} s to answer")
    named = {} if key is None else {"authorization": f"Bearer {key}"}
    try:
        answer = httpx.post(
            f"{base}{path}",
            json=body,
            headers={**named, **(headers or {})},
            timeout=_TIMEOUT_SECONDS,
            trust_env=False,
        )
    except httpx.ConnectError as error:
        raise NotRunningError(
            f"No gateway answers at {base}. Start one with headrace up."
        ) from error
    except httpx.HTTPError as error:
        raise RequestFailedError(f"The gateway at {base} did not answer: {error}.") from error
    if answer.status_code != httpx.codes.OK:
        raise RequestFailedError(f"{answer.status_code}: {sentence_of(answer.content)}")
    return answer


def show(result: Any) -> str:  # noqa: ANN401 - one item of an answer, by task
    """One text's answer, for people: label and score, entities, or the start of a vector."""
    if isinstance(result, dict) and "label" in result:
        return f"{result['label']} {result.get('score', 0.0):.3f}"
    if isinstance(result, dict) and "entity_group" in result:
        return f"{result['entity_group']} {result['word']} {result['score']:.3f}"
    if isinstance(result, list) and all(isinstance(item, dict) for item in result):
        return ", ".join(show(item) for item in result) or "nothing found"
    if isinstance(result, list):
        start = ", ".join(f"{number:.4f}" for number in result[:_NUMBERS_SHOWN])
        return f"[{start}, ...] ({len(result)} numbers)"
    return str(result)


def _cut_text(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."
