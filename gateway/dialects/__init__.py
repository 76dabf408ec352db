"""The forms in which callers ask, one module a dialect.

Each parses texts out of a body and renders an ``Answer`` into another; ``gateway.app`` gathers
their routes. A dialect never decides whether a request is admitted or which version
answers it.
"""
