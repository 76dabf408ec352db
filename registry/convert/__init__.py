"""Conversion: one model version in, one verified package out, in a process of its own."""
