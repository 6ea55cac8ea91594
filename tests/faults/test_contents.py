"""Tests a bundle that was changed by hand: nothing of it is stored under a key that its sources do
not have."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.faultlib import GOOD, Patient

from lazyck.postbuild.bundle import CONTENTS_VERSION

SIZES = (0, 1, 55, 56, 57, 63, 64, 65, 119, 120, 128, 5000)  # at these sizes, SHA-256 pads differently


@pytest.fixture
def bundle(patient: Patient) -> Iterator[Path]:
    """Yield the sources of a bundle that lists its contents, as `lazyck build` makes it."""
    root = patient.lib.directory / "lazyck"
    extra = [root / f"src/extra-{size}.h" for size in SIZES]
    for size, path in zip(SIZES, extra, strict=True):
        path.write_bytes(bytes(i % 251 for i in range(size)))
    whole = {path: path.read_bytes() for path in (root / "src").iterdir()}
    records = [CONTENTS_VERSION]
    for path, data in whole.items():
        records.append(f"{hashlib.sha256(data).hexdigest()} {path.relative_to(root)}".encode())
    listing = root / "demo" / "contents"
    listing.write_bytes(b"".join(r + b"\0" for r in records))
    yield root / "src"
    listing.unlink()
    for path, data in whole.items():
        path.write_bytes(data)
    for path in extra:
        path.unlink()


def test_bundle_as_it_was_built_is_compiled(patient: Patient, bundle: Path) -> None:
    patient.expect_recovery()
    assert patient.lib.compiles() == 2


@pytest.mark.parametrize("change", ["demo.h", "add.cpp", "extra-64.h", "extra-5000.h"])
def test_changed_file_of_the_bundle_keeps_blobs_out_of_the_cache(patient: Patient, bundle: Path, change: str) -> None:
    path = bundle / change
    good = path.read_bytes()
    path.write_bytes(good + b"// changed\n")
    done = patient.call("100")
    assert done.returncode == 3
    assert f"not as it was when the library was built: '{path}' was changed" in done.stdout
    # Only the blobs that may read the file are refused, and none of them is compiled.
    wanted = 1 if change == "add.cpp" else 0
    assert len(patient.entries()) == wanted
    assert done.stdout.endswith("sub: 3\n") == bool(wanted)
    assert patient.lib.compiles() == wanted
    path.write_bytes(good)
    patient.expect_recovery()


def test_file_that_is_gone_from_the_bundle_is_named(patient: Patient, bundle: Path) -> None:
    path = bundle / "extra-1.h"
    data = path.read_bytes()
    path.unlink()
    done = patient.call()
    assert done.returncode == 3
    assert f"'{path}' is gone" in done.stdout
    path.write_bytes(data)
    patient.expect_recovery()


def test_file_that_changes_during_the_compile_is_noticed(patient: Patient, bundle: Path) -> None:
    script = patient.lib.compiler.read_text()
    edit = f"\nprintf '// changed' >> '{bundle}/extra-0.h'\nexec "
    assert "\nexec " in script
    patient.lib.compiler.write_text(script.replace("\nexec ", edit, 1))
    try:
        done = patient.call()
    finally:
        patient.lib.compiler.write_text(script)
    assert done.returncode == 3
    assert "extra-0.h' was changed" in done.stdout
    assert not patient.entries()
    (bundle / "extra-0.h").write_bytes(b"")
    assert patient.call().stdout == GOOD


def test_list_of_another_version_is_no_list(patient: Patient, bundle: Path) -> None:
    listing = bundle.parent / "demo" / "contents"
    listing.write_bytes(listing.read_bytes().replace(CONTENTS_VERSION, b"lazyck contents 9"))
    (bundle / "extra-1.h").unlink()
    patient.expect_recovery()
