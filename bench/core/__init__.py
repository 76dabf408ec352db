"""Where a request's processor time goes in a gateway: ``python -P -m bench.core``.

One process holds a whole gateway, its callers' ends of the connections, and nothing else. Callers
ask in turns, all at once, and only the gateway's part of a turn is counted, in processor time. So
the figures hold on a machine that is busy with other work, where latencies and rates do not.
"""
