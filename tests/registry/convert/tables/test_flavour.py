"""What ``MLmodel`` and the files beside it say of a version that reads tables."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from registry.convert.errors import VersionError
from registry.convert.tables import rows
from registry.convert.tables.flavour import MLMODEL, TableVersion, find

HALF = "\ud83d"  # of an emoji


def found(folder: Path, column: str = "age", **described: Any) -> TableVersion | None:
    inputs = json.dumps([{"name": column, "type": "string"}])
    flavours = {"python_function": {"loader_module": "mine"}}
    whole = {"flavors": flavours, "signature": {"inputs": inputs}, **described}
    (folder / MLMODEL).write_text(yaml.safe_dump(whole), encoding="utf-8")
    fetched: Any = SimpleNamespace(folder=folder, refused=())
    request: Any = SimpleNamespace(pyfunc=object())
    return find(fetched, request)


def test_half_of_a_surrogate_pair_in_labels_or_in_the_signature_is_refused(tmp_path: Path) -> None:
    with pytest.raises(VersionError, match=r"labels in its metadata: \[1\]: half of a surrogate"):
        found(tmp_path, metadata={"labels": ["no", HALF]})
    with pytest.raises(VersionError, match=r"its signature: \[0\].name: half of a surrogate"):
        found(tmp_path, HALF)


@pytest.mark.parametrize("name", ["input_example.json", "evaluation_rows.jsonl"])
def test_half_of_a_surrogate_pair_in_rows_is_refused(tmp_path: Path, name: str) -> None:
    version = found(tmp_path)
    assert version is not None
    row = {"age": HALF}
    (tmp_path / "evaluation").mkdir()
    place = tmp_path if name == rows.EXAMPLE else tmp_path / "evaluation"
    (place / name).write_text(json.dumps([row] if name == rows.EXAMPLE else row))
    with pytest.raises(VersionError, match=f"{name}: .*age: half of a surrogate pair"):
        rows.find(version, [tmp_path])
