"""LlamaIndex: embeddings of OpenAI's form and of TEI's, rerankers of TEI's form and of Jina's."""

import json
import sys

from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from llama_index.embeddings.text_embeddings_inference import TextEmbeddingsInference
from llama_index.postprocessor.jinaai_rerank import JinaRerank
from llama_index.postprocessor.tei_rerank import TextEmbeddingInference as TeiRerank

url, texts, query = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]
openai = OpenAILikeEmbedding(model_name="minilm", api_base=f"{url}/v1", api_key="any")
tei = TextEmbeddingsInference(base_url=f"{url}/endpoints/minilm", model_name="minilm")
nodes = [NodeWithScore(node=TextNode(text=text)) for text in texts]
reranker = TeiRerank(base_url=f"{url}/endpoints/reranker", top_n=2)
jina = JinaRerank(base_url=f"{url}/v1", model="reranker", api_key="any", top_n=2)
missing = JinaRerank(base_url=f"{url}/v1", model="nobody", api_key="any")
try:
    missing.postprocess_nodes(nodes, query_str=query)
    refusal = "none"
except RuntimeError as error:
    refusal = str(error)
print(
    json.dumps(
        {
            "openai": openai.get_text_embedding_batch(texts),
            "openai query": openai.get_query_embedding(texts[0]),
            "tei": tei.get_text_embedding_batch(texts),
            "tei query": tei.get_query_embedding(texts[0]),
            "tei rerank": [one.text for one in reranker.postprocess_nodes(nodes, query_str=query)],
            "jina rerank": [one.text for one in jina.postprocess_nodes(nodes, query_str=query)],
            "jina refusal": refusal,
        }
    )
)
