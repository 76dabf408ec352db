"""The Kubernetes API as far as Headrace's services need it.

``access.py`` finds the API server and signs in, ``client.py`` makes one call, both through the
official client. ``watch.py`` keeps a copy of what is stored current through every way in which a
watch ends, ``mirror.py`` reads it as our own objects. ``endpoints.py`` and ``leases.py`` say how
these lie in a cluster.
"""
