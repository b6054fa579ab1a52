"""What is read of the machine: its type, the mode of its GPUs, and NVIDIA's vGPU."""

from pathlib import Path

import pytest

from deviceplugin.labels.machine import read_machine, virtual_gpu
from deviceplugin.labels.offered import VirtualGpu

SIZE, STATUS, FIRST = 256, 0x06, 0x34


def config(*capabilities: tuple[int, bytes]) -> bytes:
    """Returns a configuration space with a chain of capabilities: id, and what follows the link."""
    space = bytearray(SIZE)
    at = FIRST
    start = 0x40
    for kind, data in capabilities:
        space[STATUS] = 0x10
        space[at] = start
        space[start] = kind
        space[start + 2 : start + 2 + len(data)] = data
        at, start = start + 1, start + 2 + len(data)
    return bytes(space)


def vendor(mark: bytes, *records: bytes) -> tuple[int, bytes]:
    data = mark + b"".join(records)
    return 0x09, bytes([3 + len(data)]) + data


def record(kind: int, data: bytes) -> bytes:
    return bytes([kind, 2 + len(data)]) + data


HOST = record(0, b"460.16".ljust(10, b"\0") + b"r460_00".ljust(10, b"\0"))
POWER = 0x01, bytes(6)


def add_device(sys: Path, address: str, vendor: str, kind: str, space: bytes = bytes(SIZE)) -> None:
    device = sys / "bus/pci/devices" / address
    device.mkdir(parents=True)
    (device / "vendor").write_text(f"{vendor}\n")
    (device / "class").write_text(f"{kind}\n")
    (device / "config").write_bytes(space)


def test_nothing_can_be_read(tmp_path: Path) -> None:
    machine = read_machine(str(tmp_path / "none"), tmp_path)

    assert (machine.kind, machine.mode, machine.virtual_gpus) == ("unknown", "unknown", None)


def test_the_type_of_the_machine(tmp_path: Path) -> None:
    path = tmp_path / "product_name"
    path.write_text("DGX H100\n")

    assert read_machine(str(path), tmp_path).kind == "DGX H100"
    path.write_text("\n")
    assert read_machine(str(path), tmp_path).kind == "unknown"
    assert read_machine("", tmp_path).kind == "unknown"


@pytest.mark.parametrize(
    ("kind", "mode"),
    [("0x030200", "compute"), ("0x030000", "graphics"), ("0x038000", "unknown")],
)
def test_the_mode_is_that_of_nvidias_display_devices(tmp_path: Path, kind: str, mode: str) -> None:
    add_device(tmp_path, "0000:00:02.0", "0x8086", "0x030000")
    add_device(tmp_path, "0000:01:00.0", "0x10de", kind)
    add_device(tmp_path, "0000:00:01.0", "0x10de", "0x040300")  # a GPU's sound

    machine = read_machine("", tmp_path)

    assert (machine.mode, machine.virtual_gpus) == (mode, ())


def test_a_virtual_gpu_is_found_among_real_ones(tmp_path: Path) -> None:
    add_device(tmp_path, "0000:01:00.0", "0x10de", "0x030200")
    space = config(POWER, vendor(b"VF", record(4, b"abc"), HOST))
    add_device(tmp_path, "0000:02:00.0", "0x10de", "0x030200", space)

    assert read_machine("", tmp_path).virtual_gpus == (VirtualGpu("460.16", "r460_00"),)


def test_a_config_that_only_root_reads_whole_leaves_it_unknown(tmp_path: Path) -> None:
    add_device(tmp_path, "0000:01:00.0", "0x10de", "0x030200", bytes(64))

    assert read_machine("", tmp_path).virtual_gpus is None


@pytest.mark.parametrize(
    "space",
    [
        bytes(SIZE),
        config(POWER),
        config(POWER, vendor(b"XX", HOST)),
        bytes(SIZE - 1) + b"\xff",
        config((0x01, bytes([0]) * 6))[:0x41] + b"\x40" + bytes(SIZE - 0x42),  # links to itself
    ],
)
def test_other_devices_are_none_of_a_vgpu(space: bytes) -> None:
    assert virtual_gpu(space) is None


def test_a_vgpu_whose_records_end_early_is_one_all_the_same() -> None:
    assert virtual_gpu(config(vendor(b"VF", record(4, b"")))) == VirtualGpu()
    assert virtual_gpu(config(vendor(b"VF", bytes([7, 0])))) == VirtualGpu()
    assert virtual_gpu(config(vendor(b"VF"))) == VirtualGpu()
