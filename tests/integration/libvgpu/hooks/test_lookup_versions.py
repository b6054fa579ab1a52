"""On every simulated driver, each way to ask for a charged function ends at its hook."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from libvgpu.artifacts import shim_path
from libvgpu.hook_table import read_hook_table
from libvgpu.limits import ContainerLimits, DeviceLimit, Family
from libvgpu.region import create
from libvgpu.sim import acquire, parse_spec, release
from support import ROOT

VERSIONS = ("11.4", "12.0", "12.4", "12.8", "13.1")
# Asks for each name in each way, and prints what lies there: [way, library, symbol].
ASK = """
import ctypes, json, sys
names = json.loads(sys.stdin.read())
libc = ctypes.CDLL(None)
class Found(ctypes.Structure):
    _fields_ = [("path", ctypes.c_char_p), ("base", ctypes.c_void_p),
                ("symbol", ctypes.c_char_p), ("address", ctypes.c_void_p)]
libc.dlsym.restype = libc.dlvsym.restype = libc.dlopen.restype = ctypes.c_void_p
libc.dlsym.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
libc.dlvsym.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p]
libc.dlopen.argtypes = [ctypes.c_char_p, ctypes.c_int]
libc.dladdr.argtypes = [ctypes.c_void_p, ctypes.POINTER(Found)]
handle = libc.dlopen(b"libcuda.so.1", 0x101)  # RTLD_LAZY | RTLD_GLOBAL
cuda = ctypes.CDLL("libcuda.so.1")
cuda.cuInit(0)
answers = []
def say(way, address):
    found = Found()
    if address and libc.dladdr(address, ctypes.byref(found)):
        answers.append([way, found.path.decode().rsplit("/", 1)[-1], found.symbol.decode()])
def ask(get, name, version, flags, *status):
    found = ctypes.c_void_p()
    if get(name.encode(), ctypes.byref(found), version, ctypes.c_uint64(flags), *status) == 0:
        say(["proc", name, version, flags, len(status)], found.value)
for symbol, public in names:
    for place, where in (("handle", handle), ("default", None), ("next", ctypes.c_void_p(-1))):
        say([place, symbol], libc.dlsym(where, symbol.encode()))
    if not public:
        continue
    for version in (2000, 3020, 4000, 7000, 11040, 11080, 12040, 12080, 13000, 13010):
        for flags in (0, 1, 2):
            ask(cuda.cuGetProcAddress, public, version, flags)
            if hasattr(cuda, "cuGetProcAddress_v2"):
                ask(cuda.cuGetProcAddress_v2, public, version, flags,
                    ctypes.byref(ctypes.c_int()))
print(json.dumps(answers))
"""


def hooked() -> set[str]:
    """Returns every hooked symbol of the driver, twins too."""
    return {row.symbol for row in read_hook_table() if row.is_hooked}


def asked() -> list[tuple[str, str]]:
    """Returns symbol and public name of every row of the driver, of those that pass, too."""
    return [(r.symbol, r.public_name) for r in read_hook_table() if r.symbol.startswith("cu")]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_hooked_function_is_found_as_its_hook(version: str, tmp_path: Path) -> None:
    table = hooked()
    machine = acquire(parse_spec(f"h100-80g/cuda{version}"))
    try:
        limit = DeviceLimit(machine.devices[0].uuid, 1 << 30)
        create(tmp_path / "slice", ContainerLimits("lookup", Family.VGPU, (limit,)))
        alone = machine.environment(dict(os.environ, PYTHONPATH=str(ROOT)))
        under = alone | {"LD_PRELOAD": str(shim_path()), "VGPU_DIR": str(tmp_path / "slice")}
        said = [
            subprocess.run(
                [sys.executable, "-c", ASK],
                env=environment,
                text=True,
                check=True,
                input=json.dumps(asked()),
                capture_output=True,
            )
            for environment in (alone, under)
        ]
    finally:
        release(machine)
    without, with_shim = (
        {json.dumps(way): (library, symbol) for way, library, symbol in json.loads(each.stdout)}
        for each in said
    )

    passed = [
        way
        for way, (library, symbol) in without.items()
        if library.startswith("libcuda")
        and symbol in table
        and with_shim.get(way) != ("libvgpu.so", symbol)
    ]

    assert passed == []
    assert said[1].stderr == "", "a name or an address that has a row was taken for unknown"
    found = {symbol for library, symbol in without.values() if library.startswith("libcuda")}
    assert len(found & table) > (60 if version < "12.4" else 85)
