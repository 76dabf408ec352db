"""Files of keys that sign: made once, read by the processes that share them.

A key is hex, one a line, the newest first: the first one signs, all of them verify. So a key is
changed by writing a new line above the old one, which is taken out once nothing that it signed is
needed any more. Messages never hold what is in a file.
"""

import os
import secrets
from pathlib import Path

_KEY_BYTES = 32
_LEAST_KEY_BYTES = 16


class HexKeyFileError(Exception):
    """A file of keys can't be used. The message says why, without the file's content."""


def read_keys(path: Path) -> tuple[bytes, ...]:
    """Reads the keys in a file: hex, one a line, the newest first. Empty and # lines are ignored.

    Raises:
        HexKeyFileError: no such file, or a line that is no key.
    """
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise HexKeyFileError(f"The keys in {path} can't be read: {error}.") from None
    keys: list[bytes] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            key = bytes.fromhex(line)
        except ValueError:
            key = b""
        if len(key) < _LEAST_KEY_BYTES:
            raise HexKeyFileError(
                f"{path}, line {number}: expected at least {2 * _LEAST_KEY_BYTES} hex digits."
            )
        keys.append(key)
    if not keys:
        raise HexKeyFileError(f"{path} holds no key.")
    return tuple(keys)


def make_key_file(path: Path) -> None:
    """Writes a file with a new key, readable by its owner only. An existing file is not changed.

    Raises:
        OSError: it can't be written.
    """
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    # Written to another file first: after a crash, a half-written key would stay unreadable.
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(secrets.token_hex(_KEY_BYTES) + "\n")
        try:
            path.hardlink_to(part)  # fails if another process was faster
        except FileExistsError:
            return
    finally:
        part.unlink()
