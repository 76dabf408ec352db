"""Simulated rollouts: how verdicts of a rollout fall in traffic that is known.

``python -P -m verdicts`` runs every study, by the code that runs in production; what they show is
in ``docs/simulated.md``. Seeded: the same sizes give the same figures.
"""
