"""Simulated rollouts: what the checks promise, on traffic whose truth is known.

The evidence and the verdicts are those of the code that runs in production; tests hold them to
what is known of the traffic. ``make simulate`` prints whole tables. Seeded: the same sizes give the
same figures.
"""
