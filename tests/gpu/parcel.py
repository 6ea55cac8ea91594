"""Pack the sources, reduced to what the stages need, and the Python packages for a machine without
a network."""

import fnmatch
import io
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gpu.place import EXAMPLES, REPOSITORY, Place

sys.path.insert(0, str(EXAMPLES))

from sources import FLASH_ATTN, GSPLAT, LLAMA_CPP, MAMBA, Source, fetch

LIMIT_MIB = 64  # in MiB; the limit of a lent machine, which includes the checkout
PYTHON = "3.12"
# These are the pure Python packages that lazyck and flash-attn import. A machine with torch has the
# others.
PACKAGES = ("click", "filelock", "pyelftools", "tqdm", "packaging", "wheel", "einops")


@dataclass(frozen=True)
class Project:
    """Describes a project: its archive on PyPI, and the files of it that a stage needs. `keep`
    holds patterns relative to the archive's top directory."""

    source: Source
    keep: Sequence[str]


PROJECTS = {
    "flash_attn": Project(
        FLASH_ATTN,
        (
            "setup.py", "README.md", "flash_attn/*", "csrc/flash_attn/*", "csrc/cutlass/include/*",
            "tests/test_flash_attn.py",
        ),
    ),
    "llama.cpp": Project(
        LLAMA_CPP,
        tuple(
            f"vendor/llama.cpp/{name}"
            for name in (
                "CMakeLists.txt", "LICENSE", "cmake/*", "scripts/*", "include/*", "src/*", "common/*", "vendor/*",
                "tests/CMakeLists.txt", "tests/*.cpp", "tests/*.c", "tests/*.h", "ggml/*",
            )
        ),
    ),
    "mamba": Project(
        MAMBA,
        ("setup.py", "README.md", "csrc/*", "mamba_ssm/*"),
    ),
    "exllamav2": Project(
        Source(
            "exllamav2==0.0.4",
            "exllamav2-0.0.4.tar.gz",
            "c9eeba99d817c79a6271c3efb0e54f1c5f046a4cab874210fd3745d46b465f56",
        ),
        ("setup.py", "README.md", "exllamav2/*"),
    ),
    "gsplat": Project(
        GSPLAT,
        ("setup.py", "README.md", "gsplat/*"),
    ),
}  # fmt: skip


def commit(parcel: Path) -> str:
    """Return the commit of this checkout. Without git, return the commit from which the parcel was
    made."""
    if shutil.which("git"):
        git = ["git", "describe", "--always", "--dirty"]
        done = subprocess.run(git, cwd=REPOSITORY, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return done.stdout.strip()
    noted = parcel / "commit"
    return noted.read_text().strip() if noted.is_file() else "unknown"


def unpack(place: Place, name: str, into: str = "") -> Path:
    """Unpack a project's sources below the stage's directory `into`, and return the archive's top
    directory. The sources come out of the parcel, or from PyPI if the parcel lacks them. An
    existing directory is left as it is."""
    project, where = PROJECTS[name], place.work / into
    directory = where / project.source.archive.removesuffix(".tar.gz")
    packed = place.parcel / f"{name}.tar.xz"
    if directory.is_dir():
        return directory
    where.mkdir(parents=True, exist_ok=True)
    if not packed.is_file():
        return fetch(project.source, where)
    with tarfile.open(packed) as tar:
        # The archive is our own, and older Pythons have no extraction filters.
        if hasattr(tarfile, "data_filter"):
            tar.extractall(where, filter="data")
        else:
            tar.extractall(where)
    return directory


def pack(parcel: Path) -> int:
    """Make the parcel and print its size. Return 1 if parcel and checkout together are too
    large."""
    shutil.rmtree(parcel, ignore_errors=True)
    parcel.mkdir(parents=True)
    fetched = REPOSITORY / "gpu-work" / "fetched"
    for name, project in PROJECTS.items():
        directory = fetch(project.source, fetched)
        size = _cut(directory, project.keep, parcel / f"{name}.tar.xz")
        print(f"{name}: {size / 2**20:.1f} MiB")
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:"]
    subprocess.run([*pip, "--python-version", PYTHON, "-d", parcel / "wheels", *PACKAGES], check=True)
    (parcel / "commit").write_text(commit(parcel) + "\n")
    checkout = _size(_tracked())
    whole = checkout + _size(p for p in parcel.rglob("*") if p.is_file())
    print(
        f"the parcel: {(whole - checkout) / 2**20:.1f} MiB; with the checkout: {whole / 2**20:.1f} of {LIMIT_MIB} MiB"
    )
    if whole > LIMIT_MIB * 2**20:
        print(f"scripts/gpu: that is too large: cut more in {Path(__file__).name}", file=sys.stderr)
        return 1
    return 0


def _cut(directory: Path, keep: Sequence[str], into: Path) -> int:
    """Pack the files of `directory` that match a pattern, and return the size of the archive in
    bytes. The archive is reproducible: equal files make equal archives."""
    with tarfile.open(into, "w:xz", preset=9) as tar:
        for path in sorted(directory.rglob("*")):
            place = path.relative_to(directory).as_posix()
            if not path.is_file() or not any(fnmatch.fnmatchcase(place, pattern) for pattern in keep):
                continue
            member = tarfile.TarInfo(f"{directory.name}/{place}")
            data = path.read_bytes()
            member.size, member.mode = len(data), 0o755 if path.stat().st_mode & 0o100 else 0o644
            tar.addfile(member, io.BytesIO(data))
    return into.stat().st_size


def _tracked() -> list[Path]:
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    return [REPOSITORY / name for name in names.split("\0") if name]


def _size(paths: object) -> int:
    return sum(p.stat().st_size for p in paths if p.is_file())  # type: ignore[attr-defined]
