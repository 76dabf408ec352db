"""What of a version's requirements is installed, and what is refused before anything is."""

from pathlib import Path

import pytest

from registry.convert.errors import VersionError
from registry.convert.tables.environment import install, requirements

HASH = "--hash=sha256:" + "0" * 64


def listed(folder: Path, text: str) -> list[str]:
    (folder / "requirements.txt").write_text(text)
    return requirements(folder, "3.1.0")[0]


def test_what_opens_a_model_is_installed_whatever_it_asks_for(tmp_path: Path) -> None:
    assert requirements(tmp_path, "3.1.0")[0] == ["numpy", "pandas", "mlflow-skinny==3.1.0"]
    assert listed(tmp_path, "numpy==2.0\nscipy\n") == [
        "numpy==2.0", "scipy", "pandas", "mlflow-skinny==3.1.0",
    ]  # fmt: skip
    assert listed(tmp_path, "mlflow==3.2.0  # the whole\n") == ["mlflow==3.2.0"]
    assert "mlflow-skinny==3.1.0" not in listed(tmp_path, "mlflow_skinny\n-c constraints.txt")


def test_hashes_are_held_to(tmp_path: Path) -> None:
    text = f"mlflow==3.2.0 \\\n    {HASH}\nnumpy==2.0 {HASH}\n"
    (tmp_path / "requirements.txt").write_text(text)
    found, hashed = requirements(tmp_path, "")
    assert hashed
    assert [" ".join(line.split()) for line in found] == [
        f"mlflow==3.2.0 {HASH}", f"numpy==2.0 {HASH}",
    ]  # fmt: skip


def test_with_hashes_nothing_is_added_to_them(tmp_path: Path) -> None:
    with pytest.raises(VersionError, match="does not name mlflow"):
        listed(tmp_path, f"numpy==2.0 {HASH}\n")


@pytest.mark.parametrize(
    "line",
    [
        "--index-url https://elsewhere/simple",
        "--extra-index-url=https://elsewhere/simple",
        "-f https://elsewhere/wheels",
        "-r others.txt",
        "-e .",
        "-c /etc/passwd",
        "./wheels/a-1-py3-none-any.whl",
        "a @ https://elsewhere/a-1-py3-none-any.whl",
        "a @ file:///etc/passwd",
        "git+https://elsewhere/a.git",
        "https://elsewhere/a-1.tar.gz",
    ],
)
def test_nothing_is_taken_from_elsewhere_than_the_index(tmp_path: Path, line: str) -> None:
    with pytest.raises(VersionError, match="only packages of the index"):
        listed(tmp_path, f"numpy\n{line}\n")
    (tmp_path / "requirements.txt").write_text("numpy\n")
    (tmp_path / "constraints.txt").write_text(f"{line}\n")
    with pytest.raises(VersionError, match=r"constraints\.txt has .*: only packages of the index"):
        install(tmp_path, "3.1.0", tmp_path)


def test_what_can_not_be_installed_is_the_versions_fault_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(wheels))
    (tmp_path / "requirements.txt").write_text("no-such-package==1.0\n")
    with pytest.raises(VersionError, match=r"requirements\.txt\) can't be installed.*no-such-pack"):
        install(tmp_path, "3.1.0", tmp_path)
