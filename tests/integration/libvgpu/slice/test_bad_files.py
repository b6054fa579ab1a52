"""Whatever lies where a slice should be: one clear line, nothing granted, and nobody killed."""

import os
import random
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from libvgpu._native import ffi, lib
from libvgpu.artifacts import shim_path
from libvgpu.errors import RegionError
from libvgpu.sim import Machine
from support.shim.slices import Slice, SliceOf
from support.shim.talker import Talk, Talker
from support.waiting import PATIENCE_S

LIMIT = 1 << 30
PIECE = 64 << 20
NO_DEVICE = 100
OUT_OF_MEMORY = 2
LAYOUT_VERSION_AT = 8
USED_OF_LIMITS_COPY = 64


@pytest.fixture
def part(machine: Machine, slice_of: SliceOf) -> Slice:
    return slice_of(machine, memory_bytes=LIMIT)


def missing(path: Path) -> None:
    path.unlink()


def directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def truncated(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def grown(path: Path) -> None:
    os.truncate(path, path.stat().st_size + 4096)


def garbage(path: Path) -> None:
    path.write_bytes(os.urandom(path.stat().st_size))


def foreign(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(LAYOUT_VERSION_AT)
        file.write((99).to_bytes(4, "little"))


def bad_checksum(path: Path) -> None:
    image = bytearray(path.read_bytes())
    header = ffi.from_buffer("struct vgpu_limits_header *", image)
    copy = header.copy_offset[lib.limits_generation(header) & 1]
    image[copy + USED_OF_LIMITS_COPY] ^= 1
    path.write_bytes(image)


def never_published(path: Path) -> None:
    image = bytearray(path.read_bytes())
    ffi.from_buffer("struct vgpu_limits_header *", image).active_generation = 0
    path.write_bytes(image)


DAMAGED = "is damaged or truncated"
DAMAGES = [
    (missing, "is missing"),
    (directory, "is a directory"),
    (pipe, DAMAGED),
    (loop, "cannot be used (Too many levels of symbolic links)"),
    (empty, DAMAGED),
    (truncated, DAMAGED),
    (grown, DAMAGED),
    (garbage, DAMAGED),
    (foreign, "is of another layout version"),
]
CASES = [
    *((name, damage, words) for name in ("limits", "usage") for damage, words in DAMAGES),
    ("limits", bad_checksum, DAMAGED),
    ("limits", never_published, DAMAGED),
]


def is_refused(program: Talker, directory: str, name: str, words: str) -> None:
    """It lives, is given nothing, and says once which file, why, and what follows."""
    assert program.ask("init") == NO_DEVICE
    assert program.ask("init") == NO_DEVICE
    assert program.ask(f"alloc {PIECE}") != 0
    status, stderr = program.end()
    assert status == 0
    (line,) = stderr.splitlines()
    assert line.startswith(
        f"libvgpu: the slice in {directory} cannot be used: its file {name} {words}"
    )
    assert line.endswith("; this process is granted no GPU memory and no GPU work")


@pytest.mark.parametrize(
    ("name", "damage", "words"),
    CASES,
    ids=[f"{name}-{damage.__name__}" for name, damage, _ in CASES],
)
def test_a_slice_that_cannot_be_read_grants_nothing(
    part: Slice, talk: Talk, name: str, damage: Callable[[Path], None], words: str
) -> None:
    path = part.directory / name
    path.chmod(0o644)
    damage(path)

    is_refused(talk(part), str(part.directory), name, words)


# ---- as the container runtime mounts it ---------------------------------------------------------

# A container's view: the slice's files and the shim under /run/vgpu, and a good slice elsewhere
# that the environment names, which a managed shim does not ask.
MANAGED = """
mount -t tmpfs none /run && mkdir -p /run/vgpu/lib && cp "$SHIM" /run/vgpu/lib/libvgpu.so || exit 9
cp -R "$FILES"/* /run/vgpu || exit 9
eval "$PREPARE" || exit 9
LD_PRELOAD=/run/vgpu/lib/libvgpu.so VGPU_DIR=$GOOD exec $AS "$0"
"""
#: Root without the right to open what modes deny, as an SELinux policy denies it too.
OBEDIENT = "setpriv --bounding-set=-dac_override,-dac_read_search"
DENIED = "cannot be used (Permission denied)"


def managed(part: Slice, talk: Talk, prepare: str, obedient: bool = False) -> Talker:
    return talk(
        part,
        prefix=("unshare", "-m", "sh", "-c", MANAGED),
        SHIM=str(shim_path()),
        FILES=str(part.directory),
        GOOD=str(part.directory),
        PREPARE=prepare,
        AS=OBEDIENT if obedient else "",
        LD_PRELOAD="",
    )


@pytest.fixture(scope="module")
def mounts() -> None:
    done = subprocess.run(
        ["unshare", "-m", "mount", "-t", "tmpfs", "none", "/run"], capture_output=True, check=False
    )
    if done.returncode != 0:
        pytest.skip("mounting is not allowed here")


@pytest.mark.root
@pytest.mark.usefixtures("mounts")
@pytest.mark.parametrize(
    ("name", "prepare", "words"),
    [
        ("limits", "rm /run/vgpu/limits", "is missing"),
        ("limits", "rm /run/vgpu/limits /run/vgpu/usage", "is missing"),
        ("limits", "rm /run/vgpu/limits && mkdir /run/vgpu/limits", "is a directory"),
        ("limits", "truncate -s 100 /run/vgpu/limits", DAMAGED),
        ("usage", "rm /run/vgpu/usage", "is missing"),
        ("usage", "truncate -s 100 /run/vgpu/usage", DAMAGED),
        ("usage", "mount -o remount,ro /run", "is on a read-only filesystem"),
        # A file that can be opened and not mapped: no file of sysfs of this size can be.
        (
            "limits",
            "mount --bind /sys/kernel/uevent_seqnum /run/vgpu/limits",
            "cannot be used (No such device)",
        ),
    ],
)
def test_in_a_managed_container_nothing_else_counts(
    part: Slice, talk: Talk, name: str, prepare: str, words: str
) -> None:
    is_refused(managed(part, talk, prepare), "/run/vgpu", name, words)


@pytest.mark.root
@pytest.mark.usefixtures("mounts")
@pytest.mark.parametrize("name", ["limits", "usage"])
def test_in_a_managed_container_a_file_that_may_not_be_opened_grants_nothing(
    part: Slice, talk: Talk, name: str
) -> None:
    """As where SELinux enforces and the file has no label for containers."""
    program = managed(part, talk, f"chmod 0 /run/vgpu/{name}", obedient=True)

    is_refused(program, "/run/vgpu", name, DENIED)


@pytest.mark.root
@pytest.mark.usefixtures("mounts")
def test_in_a_managed_container_limits_may_be_read_only(part: Slice, talk: Talk) -> None:
    bind = "mount --bind /run/vgpu/limits /run/vgpu/limits && "
    program = managed(part, talk, bind + "mount -o remount,ro,bind /run/vgpu/limits")

    assert program.ask("init") == 0
    assert program.ask(f"fill {PIECE}") == LIMIT // PIECE
    assert "; the limit is set by the node\n" in program.end()[1]


# A usage file that was copied with holes: its stores need space that was never set aside.
HOLES = """
cp /run/vgpu/usage /tmp/header && mkdir /run/small && mount -t tmpfs -o size=64k none /run/small &&
cp /run/vgpu/limits /run/small && truncate -s $(stat -c %s /tmp/header) /run/small/usage &&
dd if=/tmp/header of=/run/small/usage bs=256 count=1 conv=notrunc status=none &&
mount --bind /run/small /run/vgpu
"""


@pytest.mark.root
@pytest.mark.usefixtures("mounts")
def test_a_usage_file_with_holes_on_a_full_disk_is_refused(
    part: Slice, talk: Talk, tmp_path: Path
) -> None:
    # The shim must still lie in /run/vgpu/lib, so the small disk holds only the two files.
    prepare = HOLES.replace("/tmp/header", str(tmp_path / "header")).replace(
        "mount --bind /run/small /run/vgpu",
        "for f in limits usage; do mount --bind /run/small/$f /run/vgpu/$f; done",
    )
    words = "is not fully allocated and its filesystem is full"

    is_refused(managed(part, talk, prepare), "/run/vgpu", "usage", words)


def test_a_usage_file_with_holes_is_allocated_before_use(part: Slice, talk: Talk) -> None:
    path = part.directory / "usage"
    header, size = path.read_bytes()[:256], path.stat().st_size
    with path.open("wb") as file:
        file.write(header)
        file.truncate(size)
    assert path.stat().st_blocks * 512 < size

    program = talk(part)

    assert (program.ask("init"), program.ask(f"fill {PIECE}")) == (0, LIMIT // PIECE)
    assert path.stat().st_blocks * 512 >= size


NO_SLICE = (
    "libvgpu: there is no slice: VGPU_DIR is not set, and /run/vgpu has none; this process's GPU "
    "memory and GPU work are not limited; start it with `vgpuctl run`, or do not preload "
    "libvgpu.so\n"
)


@pytest.mark.parametrize(
    ("level", "said"), [("", NO_SLICE), ("warn", NO_SLICE), ("error", "")], ids=str
)
def test_a_shim_that_nobody_told_of_a_slice_is_inert_and_says_so_once(
    part: Slice, talk: Talk, level: str, said: str
) -> None:
    own = Path("/run/vgpu")
    if (own.is_dir() and not os.access(own, os.X_OK)) or (own / "limits").exists():
        pytest.skip("this machine has a slice of its own, or hides whether it has")
    program = talk(part, VGPU_DIR="", VGPU_LOG=level)

    assert (program.ask("init"), program.ask("init")) == (0, 0)
    assert program.ask(f"alloc {4 * LIMIT}") == 0
    assert program.end() == (0, said)


def test_a_folder_named_relatively_survives_a_change_of_folder(
    part: Slice, talk: Talk, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    peer = talk(part).holds(LIMIT)
    program = talk(part, VGPU_DIR=os.path.relpath(part.directory))
    assert (program.ask("init"), program.ask(f"chdir {elsewhere}")) == (0, 0)
    peer.process.kill()
    peer.process.wait()

    assert program.ask(f"fill {PIECE}") == LIMIT // PIECE  # it has seen that its peer died


# ---- what a container does to its own file later -------------------------------------------------


def test_a_container_that_truncates_its_usage_ends_itself_alone(
    machine: Machine, slice_of: SliceOf, talk: Talk
) -> None:
    part, other = slice_of(machine, memory_bytes=LIMIT), slice_of(machine, memory_bytes=LIMIT)
    guest, neighbour = talk(part).holds(PIECE), talk(other).holds(PIECE)

    os.truncate(part.directory / "usage", 0)
    guest.tell(f"alloc {PIECE}")

    assert guest.process.wait(PATIENCE_S) == -signal.SIGBUS
    with pytest.raises(RegionError):
        part.usage()
    assert neighbour.ask(f"alloc {PIECE}") == 0
    assert other.usage().devices[0].used_bytes == 2 * PIECE
    is_refused(talk(part), str(part.directory), "usage", DAMAGED)


@pytest.mark.parametrize("seed", range(8))
def test_a_usage_file_of_random_numbers_kills_and_hangs_nobody(
    part: Slice, talk: Talk, seed: int
) -> None:
    path = part.directory / "usage"
    image = bytearray(path.read_bytes())
    numbers = random.Random(seed)
    for at in range(256, len(image), 8):
        if numbers.random() < 0.5:
            image[at : at + 8] = numbers.randbytes(8)
    image[128:132] = numbers.randbytes(4)  # hi_slot
    path.write_bytes(image)

    program = talk(part)

    assert program.ask("init") in (0, OUT_OF_MEMORY)
    assert program.ask(f"alloc {PIECE}") in (0, OUT_OF_MEMORY, 201)
    status, _ = program.end()
    assert status == 0


# ---- stderr, which is the program's --------------------------------------------------------------


def test_a_closed_or_full_stderr_neither_ends_nor_stops_a_program(
    part: Slice, talk: Talk, life_program: Path
) -> None:
    (part.directory / "limits").unlink()
    environment = part.environment()
    commands = "init\nalloc 1\ninit\n"
    for full in (False, True):
        reader, writer = os.pipe()
        if full:
            os.set_blocking(writer, False)
            while True:
                try:
                    os.write(writer, b"x" * 4096)
                except BlockingIOError:
                    break
            os.set_blocking(writer, True)
        else:
            os.close(reader)
        done = subprocess.run(
            [str(life_program)],
            env=environment,
            input=commands,
            text=True,
            stdout=subprocess.PIPE,
            stderr=writer,
            timeout=PATIENCE_S,
            check=False,
        )
        os.close(writer)
        if full:
            os.close(reader)
        assert (done.returncode, len(done.stdout.split())) == (0, 3)


def test_one_cause_is_said_once_a_second(part: Slice, talk: Talk) -> None:
    program = talk(part).holds(LIMIT)

    for _ in range(50):
        assert program.ask(f"alloc {PIECE}") == OUT_OF_MEMORY

    status, stderr = program.end()
    assert status == 0
    assert 1 <= stderr.count("libvgpu: out of memory: 64.00 MiB") <= 2  # a slow machine: 2 seconds
