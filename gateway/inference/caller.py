"""Whose request it was, as events say it: a hash that tells callers apart and names nobody.

Attempts and shadows ask for every event. It never sees an API key.
"""

from gateway.routing.split import position


def caller_hash(endpoint: str, sticky_key: str | None) -> int:
    """64 bits of whom the caller asked to be kept on one arm; 0 where it named nobody.

    Requests without ``x-headrace-key`` are spread over the arms one by one, so that none of them
    weighs more than another: whoever sent them, under whatever API key, need not be known. The
    hash is the same in every rollout of an endpoint and in no two endpoints.
    """
    if sticky_key is None:
        return 0
    return position(f"{endpoint}/caller", sticky_key)
