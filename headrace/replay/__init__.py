"""Replays real texts against an endpoint, at a pace."""
