"""Conversions as the controller sees them: which run, where they run, what they made.

``messages`` is what passes between the controller and a conversion's process, which is
``registry.convert``; that process is started by a launcher and never imported here. Whether a
version is converted is decided in ``registry.reconcile``.
"""
