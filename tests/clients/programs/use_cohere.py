"""Cohere's rerankers, of its first API and of its second."""

import json
import sys

import cohere

url, documents, query = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]
asked = {"model": "reranker", "query": query, "documents": documents, "top_n": 2}
found: dict[str, object] = {}
for version, client in (("v1", cohere.Client), ("v2", cohere.ClientV2)):
    made = client(api_key="any", base_url=url)
    results = made.rerank(**asked).results
    found[version] = [[one.index, one.relevance_score] for one in results]
try:
    cohere.ClientV2(api_key="any", base_url=url).rerank(**{**asked, "model": "nobody"})
    found["refusal"] = "none"
except cohere.NotFoundError as error:
    found["refusal"] = error.body["message"]
print(json.dumps(found))
