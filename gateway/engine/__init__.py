"""Engines: where a padded batch becomes numbers. ``triton.py`` is the real one, ``echo.py`` a stub.

Batchers send batches; ``fleet.py`` opens engines and probes them. An engine never retries and never
decides who is told what: it raises one of the errors of ``gateway.engine.protocol``.
"""
