"""Decides which requests are admitted: one controller, and what it decides by.

``controller`` answers, for every dialect and gRPC. It holds keys, rates, the budget of tokens and
the request scheduler; ``early_refusals`` asks it from within HTTP connections.
"""
