"""Rows of many requests become batches of about one length, sent when it suits their deadlines.

Inference and mirroring come in by ``batcher``.
"""
