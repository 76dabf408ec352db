"""Metrics and traces of the gateway. All rooms may use them."""
