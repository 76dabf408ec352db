"""The forms in which callers ask, one module a dialect.

Each parses texts out of a body and renders an ``Answer`` into another; ``gateway.app`` gathers
their routes. A dialect never decides anything: who may ask, what is too much and which version
answers are for others.
"""
