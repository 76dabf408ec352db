"""One module a command of ``headrace``: it asks, shows the answer, and holds no other logic.

What goes wrong is raised as one of ``headrace.errors``, for the command line to print.
"""
