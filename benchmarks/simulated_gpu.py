"""A simulated GPU for a figure that must run where Python has no package: a C compiler is enough.

It is found as a real one is, by the loader and NVML, so a figure needs to know nothing of it. An
H100 is written down in ``native/h100.inc``; any other profile needs the packages that read it.
"""

import ctypes
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from libvgpu._build import LIBCUDA, LIBNVIDIA_ML, SHIM, build, build_library
from libvgpu._sources import SIM_CORE_SOURCES, sources
from libvgpu.artifacts import SIM_BINARY_DIR, SIM_LIBRARY_DIR
from libvgpu.driver_releases import DEFAULT_CUDA, release_of_cuda
from libvgpu.errors import SimulationError

H100 = Path(__file__).resolve().parent / "native" / "h100.inc"
_SOURCE = "benchmarks/native/simulated_gpu.c"
_IDENTIFIER = "benchmark"


def _gpu_file(name: str, folder: Path) -> Path:
    if name in ("h100", "h100-80g") and "VGPU_SIM_CALIBRATION" not in os.environ:
        return H100
    from libvgpu.sim import find_profile  # these need packages
    from libvgpu.sim.identity import initializer

    written = folder / "gpu.inc"
    written.write_text(initializer(find_profile(name)))
    return written


@contextmanager
def simulated_gpu(name: str | None) -> Iterator[Mapping[str, str]]:
    """Builds what is simulated; gives the variables by which programs find a fresh GPU.

    Args:
        name: of a profile, or the path of one; None if no GPU is to be made.

    Raises:
        UsageError: there is no such profile.
        ModuleNotFoundError: it is not an H100, and a package is not there.
        VgpuError: there is no compiler, it fails, or the machine cannot be made.
    """
    if name is None:
        yield {}
        return
    with tempfile.TemporaryDirectory(prefix="vgpu-gpu-") as scratch:
        folder, machine = Path(scratch), Path(scratch, "machine")
        written = _gpu_file(name, folder)
        build([SHIM, LIBCUDA, LIBNVIDIA_ML])
        path = folder / "simulated_gpu.so"
        files = [_SOURCE, *sources(*SIM_CORE_SOURCES)]
        build_library(path, files, "-fvisibility=default", f'-DGPU_FILE="{written}"')
        library, release = ctypes.CDLL(str(path)), release_of_cuda(DEFAULT_CUDA)
        library.simulated_uuid.restype = ctypes.c_char_p
        machine.mkdir()
        status = library.simulated_create(
            os.fsencode(machine),
            _IDENTIFIER.encode(),
            ctypes.c_uint64(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2),
            DEFAULT_CUDA,
            release.version.encode(),
            release.process_entry_bytes,
            release.lists_unseen,
        )
        if status < 0:
            raise SimulationError(f"{machine} cannot be made: {os.strerror(-status)}")
        uuid = library.simulated_uuid().decode()
        (machine / "about").write_text(f"identifier {_IDENTIFIER}\ndevice {uuid}\n")
        yield {
            "VGPU_SIM_MACHINE": str(machine),
            "LD_LIBRARY_PATH": str(SIM_LIBRARY_DIR),
            "PATH": f"{SIM_BINARY_DIR}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        }
