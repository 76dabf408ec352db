"""The graph that is published: exported or taken over, its inputs settled, its pooling appended.

Nothing here runs a graph or compares what it gives.
"""
