"""Infinity's own server, with one thread for its ONNX Runtime, which it has no setting for.

After Infinity's page "CLI" (``--engine optimum``, which its README calls its fastest on CPUs;
``--batch-size``, ``--no-model-warmup``) and its own choice of an ONNX file in the model's folder.
It pools by itself: it is given the raceway's graph up to its last but one step.
"""

from functools import partial

import onnxruntime
from infinity_emb import cli
from optimum.onnxruntime import ORTModelForFeatureExtraction

if __name__ == "__main__":
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    model = ORTModelForFeatureExtraction
    model.from_pretrained = partial(model.from_pretrained, session_options=options)
    cli.cli()
