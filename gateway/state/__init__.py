"""Keeps the snapshot of what is served in line with the endpoint objects.

``reconcile`` makes new snapshots; ``sources`` reads endpoints, reports and the heartbeat.
"""
