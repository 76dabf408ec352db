"""``make bench BENCH=peers``: Headrace raced against other servers on one model file."""
