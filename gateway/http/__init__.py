"""HTTP below the dialects: requests, replies, routes, their description, the server's limits.

Handlers take a ``Request`` and give a ``Reply``, and no framework stands between them and the
server for a prediction, because per request it would cost as much as the rest of the gateway
(``docs/decisions/0007-fastapi-and-the-hot-path.md``). Nothing in this package knows a model or a
dialect.
"""
