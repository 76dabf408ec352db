"""The registry's stores in a cluster: endpoints as custom resources, reports as Leases.

Each stands behind the Protocol that the local one satisfies, and passes the same contract tests.
"""
