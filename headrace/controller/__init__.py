"""The controller's process: the registry, the rollouts and the statistics, joined.

The services know of each other only through Protocols; here they meet. Nothing else imports this.
"""
