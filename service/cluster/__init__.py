"""The Kubernetes API as far as Headrace's services need it, on the standard library alone.

``client.py`` makes one call, ``watch.py`` keeps a copy of what is stored current, ``mirror.py``
reads it as our own objects. ``endpoints.py`` and ``reports.py`` say how these lie in a cluster.
Used by the Kubernetes edges of gateway, registry and stats. It never writes by itself.
"""
