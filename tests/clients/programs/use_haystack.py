"""Haystack's embedders of OpenAI's form."""

import json
import sys

from haystack import Document
from haystack.components.embedders import OpenAIDocumentEmbedder, OpenAITextEmbedder
from haystack.utils import Secret

url, texts = sys.argv[1], json.loads(sys.argv[2])
at = {"model": "minilm", "api_base_url": f"{url}/v1", "api_key": Secret.from_token("any")}
documents = OpenAIDocumentEmbedder(**at, progress_bar=False).run(
    [Document(content=text) for text in texts]
)
query = OpenAITextEmbedder(**at).run(texts[0])
print(
    json.dumps(
        {
            "documents": [one.embedding for one in documents["documents"]],
            "query": query["embedding"],
        }
    )
)
