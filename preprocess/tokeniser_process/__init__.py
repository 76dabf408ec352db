"""A tokeniser in a process of its own: what passes between, what runs inside, what starts it.

The Rust library holds Python's interpreter lock while it reads a ``tokenizer.json`` and while it
frees one, for up to a second each. Inside a process of its own nobody else waits for that.
"""
