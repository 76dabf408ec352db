"""Tokenisers that are opened when they are asked for, each in a process of its own.

Which stay open is decided in ``bound``, without I/O; ``process`` talks to one of them, and
``on_demand`` owns them all.
"""
