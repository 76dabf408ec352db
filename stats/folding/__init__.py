"""The fold role: prediction events into window records, as one worker of a consumer group.

What is written here is exact: each event is in one record of its range, however often a worker is
killed. Nothing here knows endpoints or drift.
"""
