"""Code that a model version brings: packed, unpacked, and run in a process of its own.

``archive`` packs and unpacks it. ``process`` is the side that asks: it starts a worker, hands it
one call at a time, and starts it again when it fails. ``worker`` is the process; ``sandbox`` takes
from it what it does not need. Only plain data passes between the two, as ``messages`` says.
"""
