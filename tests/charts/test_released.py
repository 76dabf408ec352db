"""The chart as a release packages it, by helm itself."""

import subprocess
import tarfile
from pathlib import Path

import helm_chart
import yaml
from loaded_script import loaded

release = loaded(helm_chart.ROOT / ".ci" / "release.py")


def test_the_released_chart_is_packaged_and_pulls_from_its_registry(tmp_path: Path) -> None:
    made = release.chart("ghcr.io/acme", tmp_path / "made", "https://example.org/acme/headrace")
    subprocess.run(
        [helm_chart.helm(), "package", made, "--destination", tmp_path],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    version = yaml.safe_load((made / "Chart.yaml").read_text())["version"]
    with tarfile.open(tmp_path / f"headrace-{version}.tgz") as tar:
        tar.extractall(tmp_path / "packaged", filter="data")
    text = helm_chart.rendered(chart=tmp_path / "packaged" / "headrace")
    pulled = {
        line.split("image: ")[1].strip('"') for line in text.splitlines() if " image: " in line
    }
    annotations = yaml.safe_load((made / "Chart.yaml").read_text())["annotations"]
    scanned = {each["image"] for each in yaml.safe_load(annotations["artifacthub.io/images"])}
    assert pulled
    assert pulled <= scanned
