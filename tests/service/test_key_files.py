"""Files of keys: made once, for their owner alone, and never shown."""

import stat
from pathlib import Path

import pytest

from service.key_files import HexKeyFileError, make_key_file, read_keys

KEY = bytes(range(32))


def test_a_key_file_is_made_once_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "home" / "keys"
    make_key_file(path)
    keys = read_keys(path)
    assert [len(key) for key in keys] == [32]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    make_key_file(path)
    assert read_keys(path) == keys
    assert list(path.parent.iterdir()) == [path]


def test_a_key_file_says_what_is_wrong_and_never_what_is_in_it(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    with pytest.raises(HexKeyFileError, match="can't be read"):
        read_keys(path)
    path.write_text("# nothing yet\n\n")
    with pytest.raises(HexKeyFileError, match="no key"):
        read_keys(path)
    path.write_text(f"{KEY.hex()}\nsecret\n")
    with pytest.raises(HexKeyFileError, match="line 2") as caught:
        read_keys(path)
    assert "secret" not in str(caught.value)
