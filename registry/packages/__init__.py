"""Packages: where they lie, how their bytes are proved, and which may be removed.

Nothing here knows an endpoint's state or how a package is made; any room may come in.
"""
