"""Replays real texts against an endpoint, at a pace. Used by ``headrace replay``."""
