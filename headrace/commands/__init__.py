"""One module a command of ``headrace``: it asks, shows the answer, and holds no other logic."""
