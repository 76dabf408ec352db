"""Mirrored requests: copies for a version on trial, made of spare capacity, answered to nobody.

Inference comes in by ``shadow``.
"""
