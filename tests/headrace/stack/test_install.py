from pathlib import Path

import pytest

from headrace.errors import DownloadError
from headrace.stack import install, provision


def test_the_locks_that_the_program_needs_are_found() -> None:
    for name in ("triton", "export"):
        assert install.lock_file(name).is_file()


def test_a_lock_that_is_not_there_is_a_sentence() -> None:
    with pytest.raises(DownloadError, match=r"nothing\.txt"):
        install.lock_file("nothing")


def test_what_is_there_is_not_installed_again(tmp_path: Path) -> None:
    target = tmp_path / "parts"
    target.mkdir()
    said: list[str] = []
    missing = tmp_path / "no-such-lock.txt"
    assert install.ensure(target, missing, said.append, timeout_seconds=1) == target
    assert not said


def test_a_failed_installation_says_why_and_leaves_no_folder(tmp_path: Path) -> None:
    lock = tmp_path / "lock.txt"
    lock.write_text(f"./no-such-wheel-1-py3-none-any.whl --hash=sha256:{'0' * 64}\n")
    target = tmp_path / "cache" / "parts"
    with pytest.raises(DownloadError, match="uv said"):
        install.ensure(target, lock, lambda _: None, timeout_seconds=60)
    assert [path.name for path in target.parent.iterdir()] == [".parts.lock"]


def test_another_lock_means_another_folder(tmp_path: Path) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    first.write_text("a")
    second.write_text("b")
    assert install.digest(first) != install.digest(second)


@pytest.mark.parametrize("part", ["triton", "kafka"])
async def test_a_cache_that_cannot_be_written_to_is_a_sentence(tmp_path: Path, part: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DownloadError, match=r"can't be kept in .*--cache") as caught:
        await provision.fetch(part, tmp_path / "file" / "cache", lambda _: None)
    assert "Traceback" not in caught.value.message
