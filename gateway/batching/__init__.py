"""Batches texts of many requests by length, and sends batches by deadline and cost.

Inference and mirroring come in by ``batcher``.
"""
