"""Trees whose nodes point out of themselves, which a file may hold and scikit-learn does not check.

To ask such a tree reads memory that is not its own. So all trees of an opened model are looked at
before it is asked anything.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from registry.convert.errors import VersionError

_TREE, _PREDICTOR = "sklearn.tree._tree.Tree", (
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor"
)  # fmt: skip
CHECKED = frozenset({_TREE, _PREDICTOR})
_LEAF = -1


def check(model: object, features: int) -> None:
    """Refuses a model with a tree that reads beyond its nodes or beyond a row.

    Raises:
        VersionError: it has one.
    """
    for tree, columns in _trees(model, features, set()):
        if _kind(tree) == _TREE:
            inner = np.flatnonzero(tree.children_left != _LEAF)
            children = (tree.children_left, tree.children_right)
            read, values = tree.feature[inner], len(tree.value)
            size, limit = int(tree.node_count), min(int(tree.n_features), columns)
            sound = values == size
        else:
            nodes: NDArray[Any] = tree.nodes
            inner = np.flatnonzero(nodes["is_leaf"] == 0)
            children = (nodes["left"].astype(np.int64), nodes["right"].astype(np.int64))
            read, size, limit = nodes["feature_idx"][inner], len(nodes), columns
            categorical = nodes[inner]["is_categorical"] != 0
            sets = nodes[inner]["bitset_idx"][categorical]
            most = min(len(tree.raw_left_cat_bitsets), len(tree.binned_left_cat_bitsets))
            sound = bool((sets < most).all())
        # A child comes after its node, so that no way through the tree is endless.
        for side in children:
            sound = sound and bool(((side[inner] > inner) & (side[inner] < size)).all())
        if not sound or not bool(((read >= 0) & (read < limit)).all()):
            raise VersionError("a tree of the model points outside itself: the file is damaged")


def _trees(part: object, features: int, seen: set[int]) -> Iterator[tuple[Any, int]]:
    """All trees within, each with how many columns it is shown."""
    if id(part) in seen or isinstance(part, str | bytes | int | float | bool | None):
        return
    seen.add(id(part))
    if _kind(part) in CHECKED:
        yield part, features
        return
    shown = getattr(part, "n_features_in_", features)
    if isinstance(part, dict):
        inside = list(part.values())
    elif isinstance(part, list | tuple | set):
        inside = list(part)
    elif isinstance(part, np.ndarray):
        inside = part.ravel().tolist() if part.dtype == object else []
    else:
        inside = list(getattr(part, "__dict__", {}).values())
    for each in inside:
        yield from _trees(each, shown if isinstance(shown, int) else features, seen)


def _kind(part: object) -> str:
    kind = type(part)
    return f"{kind.__module__}.{kind.__qualname__}"
