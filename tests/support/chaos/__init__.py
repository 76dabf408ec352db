"""Random faults on a local stack under traffic, and what must hold meanwhile: ``make chaos``.

Read ``run.py`` from ``run`` downward. ``schedule.py`` says which fault comes when, ``faults/`` does
each. ``Traffic`` and ``rollouts.py`` are the callers and the versions meanwhile, and
``invariants.py`` holds what they saw against what must hold.
"""
