"""Where the built native files are, and the shim's build id."""

from pathlib import Path

from .errors import VgpuError

PACKAGE = Path(__file__).resolve().parent
SHIM_PATH = PACKAGE / "libvgpu.so"
SIM_LIBRARY_DIR = PACKAGE / "sim" / "lib"
SIM_BINARY_DIR = PACKAGE / "sim" / "bin"

_NOTE_NAME = b"GNU\x00"
_NT_GNU_BUILD_ID = 3
_NOTE_HEADER_BYTES = 12


def shim_path() -> Path:
    """Returns the path of the built ``libvgpu.so``.

    Raises:
        VgpuError: it was never built.
    """
    if not SHIM_PATH.exists():
        raise VgpuError(f"{SHIM_PATH} is missing", hint="build it with: make build")
    return SHIM_PATH


def build_id(path: Path) -> str:
    """Returns the GNU build id of an ELF file in hex (the linker's hash of its content).

    Raises:
        VgpuError: the file carries none, or cannot be read.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise VgpuError(f"{path} cannot be read: {error.strerror}") from None
    at = data.find(_NOTE_NAME)
    while at >= 0:
        start = at - _NOTE_HEADER_BYTES
        size = int.from_bytes(data[start + 4 : start + 8], "little")
        kind = int.from_bytes(data[start + 8 : start + 12], "little")
        name_size = int.from_bytes(data[start : start + 4], "little")
        if start >= 0 and name_size == len(_NOTE_NAME) and kind == _NT_GNU_BUILD_ID:
            return data[at + 4 : at + 4 + size].hex()
        at = data.find(_NOTE_NAME, at + 1)
    raise VgpuError(f"{path} has no build id", hint="link it with --build-id=sha1")
