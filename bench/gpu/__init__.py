"""``make bench BENCH=gpu``: the engine, whole Headrace and the Triton ensemble on a GPU."""
