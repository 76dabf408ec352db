"""The process that reconciles: registry, rollout and the reading side of statistics meet here.

It looks at every endpoint in turn and writes its next status. Services know of each other through
Protocols and contracts only; this package joins them, and nothing imports it.
"""
