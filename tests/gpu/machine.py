"""Find out what this machine offers to the stages that prove lazyck on a GPU."""

import ctypes
import json
import os
import platform
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from lazyck.toolchains import by_name

# torch is not imported, which would take seconds.
_TORCH = """
import json, runpy
from importlib.util import find_spec
from pathlib import Path
said = runpy.run_path(str(Path(find_spec("torch").origin).with_name("version.py")))
print(json.dumps({"version": said["__version__"], "cuda": said["cuda"], "hip": said["hip"]}))
"""
_NAME_SIZE = 256
_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_…


@dataclass(frozen=True)
class Machine:
    """Describes a machine. `gpu` is the device's name, `arch` its architecture in lazyck's words,
    `compiler` the release of nvcc or hipcc, and `torch` the version of a torch that is built for
    this platform. A field is an empty string if the machine lacks the thing."""

    platform: str
    gpu: str
    arch: str
    driver: str
    compiler: str
    home: str
    torch: str
    python: str
    system: str
    cores: int
    memory_gb: int
    sanitizer: str

    def blind(self, torch: bool = False) -> str:
        """Return why results cannot be checked here, or an empty string if they can. `torch` says
        whether the results are torch's."""
        if not self.gpu:
            return "no GPU"
        return "no torch for it" if torch and not self.torch else ""

    def save(self, path: Path) -> None:
        """Write the machine to `path` as JSON, for `load`."""
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")


def load(path: Path) -> Machine:
    """Read a machine that `save` wrote."""
    return Machine(**json.loads(path.read_text()))


def look(name: str, arch: str) -> Machine:
    """Describe this machine for the platform `name`, `cuda` or `hip`. `arch` is used if no GPU is
    found."""
    found = by_name("rocm" if name == "hip" else "cuda").find(dict(os.environ))
    home = found.home if found else ""
    gpu, own_arch, driver = _cuda_gpu() if name == "cuda" else _hip_gpu(home)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Machine(
        platform=name,
        gpu=gpu,
        arch=own_arch or arch,
        driver=driver,
        compiler=_first_line(
            [f"{home}/bin/{'nvcc' if name == 'cuda' else 'hipcc'}", "--version"], "release", "version"
        ),
        home=home,
        torch=_torch(name),
        python=platform.python_version(),
        system=f"{platform.freedesktop_os_release().get('PRETTY_NAME', 'Linux')}, Linux {platform.release()}",
        cores=len(os.sched_getaffinity(0)),
        memory_gb=round(memory / 2**30),
        sanitizer=_sanitizer(home) if name == "cuda" else "",
    )


def _cuda_gpu() -> tuple[str, str, str]:
    """Return the name, capability and driver of the first device, as the driver reports them."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "", "", ""
    device, major, minor, version = ctypes.c_int(), ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    if driver.cuInit(0) != 0 or driver.cuDeviceGet(ctypes.byref(device), 0) != 0:
        return "", "", ""
    name = ctypes.create_string_buffer(_NAME_SIZE)
    driver.cuDeviceGetName(name, _NAME_SIZE, device)
    for value, attribute in ((major, _MAJOR), (minor, _MINOR)):
        driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, device)
    driver.cuDriverGetVersion(ctypes.byref(version))
    shown = _first_line(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"])
    cuda = f"CUDA {version.value // 1000}.{version.value % 1000 // 10}"
    return name.value.decode(), f"{major.value}{minor.value}", f"{shown} ({cuda})" if shown else cuda


def _hip_gpu(home: str) -> tuple[str, str, str]:
    """Return name and architecture of the first agent that is a GPU, and ROCm's release. The
    stand-in of scripts/fake_rocm_home counts as a GPU."""
    if "fake" in _output([f"{home}/bin/hipcc", "--version"]):
        return "a stand-in on the CPU", os.environ.get("FAKE_ROCM_ARCH", "gfx942"), ""
    name = arch = ""
    for block in _output([f"{home}/bin/rocminfo"]).split("Agent ")[1:]:
        fields = {k.strip(): v.strip() for k, _, v in (line.partition(":") for line in block.splitlines())}
        if fields.get("Device Type") == "GPU" and not arch:
            name, arch = fields.get("Marketing Name", ""), fields.get("Name", "")
    version = Path(home, ".info", "version")
    return name or arch, arch, f"ROCm {version.read_text().strip()}" if version.is_file() else ""


def _sanitizer(home: str) -> str:
    found = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path=f"{home}/bin")
    return found or next((str(p) for p in Path(home).glob("compute-sanitizer/compute-sanitizer")), "")


def _torch(name: str) -> str:
    shown = _output([sys.executable, "-c", _TORCH])
    if not shown:
        return ""
    said = json.loads(shown.splitlines()[-1])
    return str(said["version"]) if said[name] else ""


def _first_line(argv: list[str], *words: str) -> str:
    """Return the first line of a command's output that contains one of `words`, or simply the first
    line if no words are given."""
    return next((x.strip() for x in _output(argv).splitlines() if not words or any(w in x for w in words)), "")


def _output(argv: list[str]) -> str:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""
