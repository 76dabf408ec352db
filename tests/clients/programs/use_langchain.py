"""LangChain's embeddings of OpenAI's form, which send token ids, or text where they are told to."""

import json
import os
import sys
from pathlib import Path

import llama_index.core

# The vocabulary that OpenAIEmbeddings makes token ids by. It would download it; LlamaIndex has it.
_CACHE = Path(llama_index.core.__file__).parent / "_static" / "tiktoken_cache"
os.environ["TIKTOKEN_CACHE_DIR"] = str(_CACHE)

from langchain_openai import OpenAIEmbeddings  # noqa: E402

url, texts = sys.argv[1], json.loads(sys.argv[2])
openai = OpenAIEmbeddings(model="minilm", base_url=f"{url}/v1", api_key="any")
as_text = OpenAIEmbeddings(
    model="minilm", base_url=f"{url}/v1", api_key="any", check_embedding_ctx_length=False
)
print(
    json.dumps(
        {
            "documents": openai.embed_documents(texts),
            "query": openai.embed_query(texts[0]),
            "documents as text": as_text.embed_documents(texts),
        }
    )
)
