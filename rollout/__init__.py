"""Moves a new version from shadow to all callers, or back: the state machine and its checks."""
