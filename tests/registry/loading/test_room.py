"""What fits beside what a Triton holds."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from registry_fakes import manifest

from contracts.manifest import (
    ENCODER_ONNX,
    MODEL_ONNX,
    PYFUNC,
    Manifest,
    PackageFile,
    PyfuncSpec,
)
from registry.loading.room import NoRoomError, PackageNeed, Room

BYTES = st.integers(0, 1 << 40)
NEEDS = st.builds(PackageNeed, BYTES, st.integers(1, 1 << 40))


def fits(room: Room, need: PackageNeed, held: list[PackageNeed], *, on_gpu: bool = False) -> bool:
    try:
        room.check(need, held, on_gpu=on_gpu)
    except NoRoomError:
        return False
    return True


@given(NEEDS, st.lists(NEEDS, max_size=5), BYTES, BYTES, st.booleans())
def test_what_is_taken_in_never_passes_what_there_is(
    need: PackageNeed, held: list[PackageNeed], memory: int, disk: int, on_gpu: bool
) -> None:
    together = [need, *held]
    expected = sum(each.disk_bytes for each in together) <= disk and (
        on_gpu or sum(each.memory_bytes for each in together) <= memory
    )
    assert fits(Room(memory, disk), need, held, on_gpu=on_gpu) == expected
    assert fits(Room(), need, held)


def test_what_is_free_on_the_disk_counts_where_no_number_is_given(tmp_path: Path) -> None:
    folder = tmp_path / "packages"  # made when the first package is fetched
    assert fits(Room(folder=folder), PackageNeed(0, 1), [])
    with pytest.raises(NoRoomError, match="of disk"):
        Room(folder=folder).check(PackageNeed(0, 1 << 60), [], on_gpu=False)


def test_a_package_needs_its_files_and_both_its_graphs() -> None:
    sizes = {MODEL_ONNX: 100, ENCODER_ONNX: 50, "tokenizer.json": 7}
    files = {name: PackageFile(sha256="0" * 64, bytes=size) for name, size in sizes.items()}
    made = manifest().model_copy(update={"files": files})
    need = PackageNeed.of(made, process=False)
    assert (need.memory_bytes, need.disk_bytes) == (300, 157)
    assert PackageNeed.of(made, process=True).memory_bytes > 300


def pyfunc(model_bytes: int, site_bytes: int) -> Manifest:
    spec = PyfuncSpec(python="3.11", example=(1.0,), model_bytes=model_bytes, site_bytes=site_bytes)
    files = {PYFUNC: PackageFile(sha256="0" * 64, bytes=100)}
    return manifest().model_copy(update={"files": files, "pyfunc": spec})


def test_a_pyfunc_needs_its_archive_and_what_it_unpacks_to() -> None:
    need = PackageNeed.of(pyfunc(model_bytes=30, site_bytes=900), process=True)
    assert need.disk_bytes == 100 + 30 + 900
    other = PackageNeed.of(manifest().model_copy(update={"files": {}}), process=True)
    assert need.memory_bytes == 2 * other.memory_bytes + 30  # Triton's process and its own
    assert fits(Room(disk_bytes=1030), need, [])
    assert not fits(Room(disk_bytes=1029), need, [])
