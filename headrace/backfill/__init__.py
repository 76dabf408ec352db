"""Vectors of a file's texts by way of the gateway's idle capacity; ``headrace backfill``."""
