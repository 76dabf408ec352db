"""Reranking and token classification beside other ways to serve them, on one engine file."""
