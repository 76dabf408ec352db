"""Endpoints as people write them: YAML in, sentences and differences out."""
