"""A kubeconfig that leads to the made-up API server."""

from pathlib import Path

import yaml


def write_kubeconfig(folder: Path, server: str) -> Path:
    """Writes one whose only context reaches ``server``; returns its path."""
    path = folder / "kubeconfig"
    said = {
        "current-context": "fake",
        "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "nobody"}}],
        "clusters": [{"name": "fake", "cluster": {"server": server}}],
        "users": [{"name": "nobody", "user": {}}],
    }
    path.write_text(yaml.safe_dump(said))
    return path
