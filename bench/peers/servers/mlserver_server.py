"""MLServer's custom runtime with adaptive batching.

After MLServer's pages "Custom Inference Runtimes", "Adaptive Batching" (``max_batch_size``,
``max_batch_time``) and "Parallel Inference" (one worker process, so that requests are gathered
while it computes); debug mode and its access log are off.
"""

from mlserver import MLModel
from mlserver.codecs import NumpyCodec, StringCodec
from mlserver.types import InferenceRequest, InferenceResponse

from bench.peers.servers.embedder import Embedder


class Embeddings(MLModel):
    """The one model."""

    async def load(self) -> bool:
        """Opens it in the worker."""
        self._embedder = Embedder.from_environment()
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Vectors of the texts that MLServer joined out of several requests."""
        texts = StringCodec.decode_input(payload.inputs[0])
        output = NumpyCodec.encode_output("vectors", self._embedder.embed(texts))
        return InferenceResponse(model_name=self.name, outputs=[output])
