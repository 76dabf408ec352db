"""The command line, the local stack behind ``headrace up``, and the controller's main."""
