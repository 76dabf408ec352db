"""What the roles and the controller read: window records, the ends of logs, endpoints.

No reader here joins a consumer group, commits an offset or writes anything.
"""
