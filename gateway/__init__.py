"""The gateway: HTTP and gRPC in, batches of tensors out to Triton, an event for every attempt.

``main.py`` builds one process from one settings object; ``inference/pipeline.py`` is the way of one
request.
"""
