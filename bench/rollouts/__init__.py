"""Simulated rollouts: what the checks promise, on traffic whose truth is known.

``python -P -m bench.rollouts`` runs every study, by the code that runs in production, and writes
the figures and the tables of ``docs/rollout-figures.md`` and ``docs/simulations.md``. Seeded: the
same sizes give the same figures.
"""
