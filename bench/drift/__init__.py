"""Drift as it is measured: how often quiet traffic alarms, and how soon real shifts are found."""
