"""One request from its texts to its answer: encode, infer, decode, sign, record.

Dialects come in through admission; nothing here knows how a request was sent.
"""
