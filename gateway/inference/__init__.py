"""One request from its texts to its answer: ``pipeline`` reads downward.

``serving`` holds the snapshot of what is served, which is replaced as a whole. Nothing here depends
on how a request was sent.
"""
