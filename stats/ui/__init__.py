"""The page ``/ui``: endpoints, drift, outputs and rollouts in a browser, read-only, no build step.

Served by the evaluate role (``stats.evaluate_main``) beside its ``/metrics``.
"""
