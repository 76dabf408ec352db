"""One request from its texts to its answer: ``pipeline`` reads downward.

``serving`` is what it serves from, swapped in whole. Nothing here knows how a request was sent.
"""
