"""What a program of the runtime API has of a GPU when it begins; its version is the last argument.

The library is one that the loader finds, or that of a package of this Python. See run_steps.py.
"""

import ctypes
import sys
from pathlib import Path

NAME = f"libcudart.so.{sys.argv[-1]}"


def _load() -> ctypes.CDLL:
    packages = (path for base in sys.path for path in Path(base).glob(f"nvidia/*/lib/{NAME}"))
    for path in (NAME, *map(str, packages)):
        try:
            return ctypes.CDLL(path)
        except OSError:
            continue
    raise OSError(f"there is no {NAME}")


library = _load()


def _must(name: str, *arguments: object) -> None:
    if status := getattr(library, name)(*arguments):
        raise RuntimeError(f"{name} answers {status}")


def allocate() -> None:
    _must("cudaMalloc", ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(64 << 20))


STEPS = [
    ("cudaFree(0)", lambda: _must("cudaFree", None)),
    ("cudaDeviceReset", lambda: _must("cudaDeviceReset")),
    ("cudaMalloc", allocate),
]
