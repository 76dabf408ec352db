"""Benchmarks, of a checkout and in no wheel: ``bench.core`` and ``bench.gpu`` print tables.

Load comes from a process of its own (``bench.loadgen``). Nothing here asserts a time.
"""
