"""Where endpoints, loaders' reports and the controller's heartbeat lie: in a folder or a cluster.

Each is a Protocol with two implementations that pass the same contract tests; ``opening`` chooses
by a flag. No decision about an endpoint is made here, and any room may come in.
"""
