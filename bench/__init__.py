"""Benchmarks: `python -m bench SUITE` prints a table and writes JSON."""
