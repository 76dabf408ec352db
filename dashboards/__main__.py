"""``python -P -m dashboards``: writes ``dashboards/generated``."""

import argparse
from pathlib import Path

from dashboards.generate import files

GENERATED = Path(__file__).with_name("generated")


def main() -> None:
    """Writes every file, and removes what is no longer made."""
    parser = argparse.ArgumentParser(prog="python -P -m dashboards", description=__doc__)
    parser.add_argument("--out", type=Path, default=GENERATED, help="folder to write to")
    out: Path = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    made = files()
    for path in out.iterdir():
        if path.name not in made:
            path.unlink()
    for name, data in made.items():
        (out / name).write_bytes(data)


if __name__ == "__main__":
    main()
