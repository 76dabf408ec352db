"""The table of clients in ``docs/clients.md``: made of the tests that run them.

``python -P tests/support/client_table.py`` writes it.
"""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "clients.md"
_BEGIN, _END = "<!-- clients -->\n", "<!-- end -->\n"
_DEV, _OWN, _NEMO = "locks/dev.txt", "locks/clients.txt", "locks/nemo.txt"


class Row(NamedTuple):
    """A client: its package, the lock that it is tested by, and how it is told the address."""

    client: str
    package: str
    lock: str
    address: str
    routes: str
    test: str


ROWS = (
    Row(
        "`InferenceClient` of huggingface_hub",
        "huggingface-hub",
        _DEV,
        '`InferenceClient("URL/endpoints/NAME")`',
        "`/endpoints/NAME`",
        "tests/gateway/dialects/test_hub_client.py",
    ),
    Row(
        "`openai`: embeddings, models",
        "openai",
        _DEV,
        '`OpenAI(base_url="URL/v1")`',
        "`/v1/embeddings`, `/v1/models`",
        "tests/gateway/dialects/test_openai.py",
    ),
    Row(
        "`openai`: completions",
        "openai",
        _DEV,
        '`OpenAI(base_url="URL/v1")`',
        "`/v1/completions`",
        "tests/gateway/dialects/test_completions.py",
    ),
    Row(
        "LangChain `OpenAIEmbeddings`",
        "langchain-openai",
        _OWN,
        '`OpenAIEmbeddings(model="NAME", base_url="URL/v1")`',
        "`/v1/embeddings`",
        "tests/clients/test_langchain.py",
    ),
    Row(
        "LlamaIndex `OpenAILikeEmbedding`",
        "llama-index-embeddings-openai-like",
        _OWN,
        '`OpenAILikeEmbedding(model_name="NAME", api_base="URL/v1")`',
        "`/v1/embeddings`",
        "tests/clients/test_llama_index.py",
    ),
    Row(
        "LlamaIndex `TextEmbeddingsInference`",
        "llama-index-embeddings-text-embeddings-inference",
        _OWN,
        '`TextEmbeddingsInference(base_url="URL/endpoints/NAME", ...)`',
        "`/endpoints/NAME/embed`",
        "tests/clients/test_llama_index.py",
    ),
    Row(
        "LlamaIndex `TextEmbeddingInference` (reranker)",
        "llama-index-postprocessor-tei-rerank",
        _OWN,
        '`TextEmbeddingInference(base_url="URL/endpoints/NAME")`',
        "`/endpoints/NAME/rerank`",
        "tests/clients/test_llama_index.py",
    ),
    Row(
        "LlamaIndex `JinaRerank`",
        "llama-index-postprocessor-jinaai-rerank",
        _OWN,
        '`JinaRerank(base_url="URL/v1", model="NAME")`',
        "`/v1/rerank`",
        "tests/clients/test_llama_index.py",
    ),
    Row(
        "Haystack `OpenAITextEmbedder`, `OpenAIDocumentEmbedder`",
        "haystack-ai",
        _OWN,
        '`OpenAITextEmbedder(model="NAME", api_base_url="URL/v1")`',
        "`/v1/embeddings`",
        "tests/clients/test_haystack.py",
    ),
    Row(
        "`cohere`: `Client`, `ClientV2`",
        "cohere",
        _OWN,
        '`ClientV2(base_url="URL")`',
        "`/v1/rerank`, `/v2/rerank`",
        "tests/clients/test_cohere.py",
    ),
    Row(
        "LiteLLM's generic guardrail API",
        "litellm",
        _OWN,
        "`api_base: URL/endpoints/NAME`",
        "`/endpoints/NAME/beta/litellm_basic_guardrail_api`",
        "tests/clients/test_litellm.py",
    ),
    Row(
        "NeMo Guardrails: `hf_classifier`",
        "nemoguardrails",
        _NEMO,
        "`engine: fms`, `base_url: URL/endpoints/NAME`",
        "`/endpoints/NAME/api/v1/text/contents`",
        "tests/clients/test_nemo.py",
    ),
    Row(
        "gRPC's own health and reflection",
        "grpcio-reflection",
        _OWN,
        '`insecure_channel("HOST:PORT")`',
        "`grpc.health.v1`, `grpc.reflection.v1alpha`",
        "tests/clients/test_grpc.py",
    ),
    Row(
        "`tritonclient`, HTTP and gRPC",
        "tritonclient",
        _DEV,
        '`InferenceServerClient("HOST:PORT")`',
        "`/v2`, `inference.GRPCInferenceService`",
        "tests/gateway/dialects/test_oip_clients.py",
    ),
)


def version(row: Row) -> str:
    """The package's version in its lock."""
    lock = (ROOT / row.lock).read_text(encoding="utf-8")
    found = re.search(rf"^{re.escape(row.package)}==(\S+)", lock, re.MULTILINE)
    if found is None:
        raise LookupError(f"{row.lock} has no {row.package}")
    return found[1]


def table() -> str:
    """The table."""
    lines = ["| client | version | its address | routes | test |", "|---|---|---|---|---|"]
    for row in ROWS:
        name = Path(row.test).name
        lines.append(
            f"| {row.client} | {version(row)} | {row.address} | {row.routes} "
            f"| [`{name}`](../{row.test}) |"
        )
    return "\n".join(lines) + "\n"


def with_table(document: str) -> str:
    """The document with the table as it is now."""
    before, _, rest = document.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return f"{before}{_BEGIN}{table()}{_END}{after}"


if __name__ == "__main__":
    DOCUMENT.write_text(with_table(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
