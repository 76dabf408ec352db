"""HTTP without a framework: requests, replies, routes and the limits of the server under them.

A plain ASGI application, because per request a framework costs as much as the rest of the gateway:
of a core's requests a second, one seventh less than nothing but uvicorn here, half of it under
Starlette and a third under FastAPI (an echo of one JSON object, measured side by side). Nothing in
this package knows a model or a dialect.
"""
