"""Processes in /proc that chose their names, files, mounts and cgroups to mislead the watch.

The kernel writes a line for each; what a tenant chose may hold any character but those that it
escapes: a newline everywhere, and in tables of mounts blanks, tabs and backslashes.
"""

from pathlib import Path
from tempfile import mkdtemp

from deviceplugin.cleaning import mounts
from deviceplugin.watch import cgroups, procfs
from fuzz.shapes import Shapes

_UID = "12345678-1234-1234-1234-123456789abc"
_CONTAINER = "c" * 64
_WORDS = (
    f"/kubepods/burstable/pod{_UID}/{_CONTAINER}", f"kubepods-pod{_UID.replace('-', '_')}.slice",
    "/run/vgpu", "/limits", "//deleted", ") R 1 (", "NSpid:\t7\t8", "\r", "\x0b", "\x1c", "\x85",
    "\u2028", "\r1-2 r-xp 0 0:1 x /", "0::/", " - ", "/a", "..", f"x-{_CONTAINER}.scope",
)  # fmt: skip
_PID, _INODE = 77, 4711
_FOLDER = Path(mkdtemp(prefix="vgpu-fuzz-"))
_STAT = f"{_PID} (%s) %s 1 1 1 0 -1 %d 0 0 0 0 0 0 0 0 20 0 1 0 4242 0 0"


def _chosen(shapes: Shapes) -> str:
    """Returns what a tenant may choose."""
    parts = [shapes.text(_WORDS) for _ in range(shapes.byte() % 4)]
    return "".join(parts).replace("\n", "\\n").replace("\0", "")[:400]


def _mount_field(text: str) -> str:
    return "".join(f"\\{ord(c):03o}" if c in " \t\\" else c for c in text)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    is_latin = max(text, default="") < "\u0100"  # and then no UTF-8
    path.write_bytes(text.encode("latin-1" if is_latin else "utf-8", "replace"))


def _text(path: Path) -> str:
    return path.read_bytes().decode("utf-8", "replace")


def one(data: bytes) -> None:
    """Lays one process into a folder and reads it as the watch does."""
    shapes = Shapes(data)
    process = _FOLDER / str(_PID)
    state, flags = shapes.pick("SRZX"), shapes.byte()
    for thread in (process, process / "task/78"):
        _write(thread / "stat", _STAT % (_chosen(shapes)[:15], state, flags))
        state = shapes.pick("SZ")
    _write(process / "status", f"Name:\t{_chosen(shapes)[:15]}\nNSpid:\t{_PID}\t5\n")
    files = [_chosen(shapes) for _ in range(shapes.byte() % 4)]
    _write(
        process / "maps",
        "".join(f"1-2 r-xp 0 0:1 {_INODE}       /{each}\n" for each in files)
        + "1-2 rw-p 0 0:1 0\n",
    )
    sources = [_mount_field(_chosen(shapes)) for _ in range(shapes.byte() % 4)]
    rows = "".join(f"9 8 0:7 /{each} /{each} rw shared:1 - tmpfs {each} rw\n" for each in sources)
    _write(process / "mountinfo", rows)
    inner = _chosen(shapes)
    _write(process / "cgroup", f"0::/kubepods/pod{_UID}/{_CONTAINER}/{inner}\n")
    for name in ("maps", "mountinfo", "cgroup"):
        (process / "task/78" / name).write_bytes((process / name).read_bytes())
    _look(process, len(files), len(sources))
    _end(process, shapes)
    cgroups.pod_cgroup(shapes.rest().decode("utf-8", "replace"))


def _end(process: Path, shapes: Shapes) -> None:
    """Has it end while it is read: a file is gone, its state is cut off."""
    kept = (process / "stat").read_bytes()
    (process / "stat").write_bytes(kept[: shapes.byte()])
    procfs.read_process(_PID, _FOLDER)
    (process / "stat").write_bytes(kept)
    (process / shapes.pick(("stat", "status", "cgroup"))).unlink()
    procfs.read_process(_PID, _FOLDER)
    procfs.container_members({_CONTAINER}, _FOLDER)


def _look(process: Path, file_count: int, mount_count: int) -> None:
    found = procfs.read_process(_PID, _FOLDER)
    place = cgroups.pod_cgroup(_text(process / "cgroup"))
    assert place == cgroups.PodCgroup(_UID, _CONTAINER), "left its cgroup"
    if found is not None:
        assert found.pod == place and found.command.isprintable()
    mapped = list(procfs.read_mapped_files(_PID, _FOLDER))
    assert [inode for inode, _ in mapped] == [_INODE] * file_count, "made up a file"
    seen = list(procfs.read_mounts(_PID, _FOLDER))
    assert [each.device for each in seen] == ["0:7"] * mount_count, "made up a mount"
    assert len(mounts.read_mounts(process)) == mount_count
    assert procfs.container_members({_CONTAINER}, _FOLDER) == {_CONTAINER: [_PID]}
