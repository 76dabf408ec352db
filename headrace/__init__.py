"""The command line, and the local stack behind ``headrace up``."""
