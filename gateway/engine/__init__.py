"""Engines: the connections to Tritons.

Batchers send batches; ``fleet.py`` opens engines and probes them. An engine never retries. It
raises one of the errors of ``gateway.engine.protocol``.
"""
