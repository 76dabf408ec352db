"""Mirrored requests: sent to a version on trial from spare capacity, answered to nobody.

Inference comes in by ``shadow``.
"""
