"""Simulated streams of real texts, by which tests hold the alarms of drift."""
