"""The peers' own programs, each run by the interpreter of its own environment.

They import nothing of Headrace's but this folder. Every peer gets the same ``Embedder``; how it
receives, batches and answers is the peer's.
"""
