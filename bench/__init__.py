"""Benchmarks: ``python -P -m bench SUITE`` prints tables and writes JSON.

``__main__`` runs suites; each suite in ``bench/suites/`` is one question from the performance
targets. Load comes from a process of its own (``bench.loadgen``). Nothing here asserts a time.
"""
