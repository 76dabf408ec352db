"""What the gateway is told: endpoint objects, and what loaders report of their Tritons.

``reconcile.py`` watches both. A source never raises for an outage: whoever can't reach it goes on
with the last one.
"""
