"""Which version answers a caller: an endpoint's routes and the hash space of its callers.

Pure functions of values; the request pipeline comes in by ``routes``.
"""
