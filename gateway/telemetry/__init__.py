"""What the gateway tells of itself: metrics and traces.

Any room may come in. Nothing here decides anything.
"""
