"""A copy of the downloaded parts whose Tritons each stand behind a ``SickTriton``.

``headrace up --parts`` starts the program that lies where Triton's would: here ``sick_program``.
All but that one file are links.
"""

import json
import stat
import sys
from collections.abc import Mapping
from pathlib import Path

from sick_triton import Ward

from headrace.stack.triton import TritonFiles


def made(files: TritonFiles, target: Path, ports: Mapping[str, int]) -> dict[str, Ward]:
    """Makes the folder of parts; returns each Triton's ward.

    Args:
        files: the real Triton, in a folder that holds all parts.
        target: the folder, which is new.
        ports: name of a Triton -> a free port, for the real one.
    """
    target.mkdir()
    _link_beside(files.folder.parent, target, files.folder.name)
    real, inner = files.folder, target / files.folder.name
    for name in files.binary.relative_to(files.folder).parts:
        inner.mkdir()
        _link_beside(real, inner, name)
        real, inner = real / name, inner / name
    wards = target.with_name(f"{target.name}-wards")
    told = {name: {"port": port, "ward": str(wards / name)} for name, port in ports.items()}
    inner.with_name("sick.json").write_text(
        json.dumps({"real": str(files.binary), "tritons": told}), encoding="utf-8"
    )
    inner.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from sick_program import become\nbecome(__file__, sys.argv[1:])\n",
        encoding="utf-8",
    )
    inner.chmod(inner.stat().st_mode | stat.S_IXUSR)
    return {name: Ward(wards / name) for name in ports}


def _link_beside(real: Path, copy: Path, without: str) -> None:
    for path in real.iterdir():
        if path.name != without:
            (copy / path.name).symlink_to(path)
