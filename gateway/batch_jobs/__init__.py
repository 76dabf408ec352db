"""Files of requests that callers leave here, and batches of them that are answered later.

They lie in a store that all gateways share (``objects``, ``store``); each gateway runs batches that
no other one runs (``runner``). Nothing here knows how a single request is answered.
"""
