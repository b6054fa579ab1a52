"""A ``/proc`` of a test's own: processes with the files that the watch reads."""

from pathlib import Path

UID = "0f5cd3cb-8e76-4b4b-8f62-3a9d1d2c7e11"
OTHER_UID = "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"
CONTAINER = "c" * 64
DEVICE = "0:77"


def pod_path(uid: str = UID) -> str:
    return f"/kubepods/burstable/pod{uid}/{CONTAINER}"


def mount_line(source: str, target: str = "/run/vgpu/limits", device: str = DEVICE) -> str:
    return f"512 480 {device} {source} {target} ro,relatime - tmpfs tmpfs rw\n"


class FakeProc:
    """The directory, and a way to put processes into it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def put(  # noqa: PLR0913 - a file for each
        self, pid: int, *, start: int = 1000, state: str = "S", command: str = "worker",
        cgroup: str = "/", mounts: str = "", maps: str = "", inner_pid: int | None = None,
        tells_namespace: bool = False, parent: int = 1, flags: int = 0,
    ) -> None:  # fmt: skip
        """Makes a process, or makes it another."""
        directory = self.path / str(pid)
        directory.mkdir(parents=True, exist_ok=True)
        rest = " ".join([str(parent), *["0"] * 4, str(flags), *["0"] * 12])
        inner = pid if inner_pid is None else inner_pid
        (directory / "stat").write_text(f"{pid} ({command}) {state} {rest} {start} 0 0\n")
        (directory / "status").write_text(f"Name:\tx\nNSpid:\t{pid}\t{inner}\n")
        (directory / "cgroup").write_text(f"0::{cgroup}\n")
        (directory / "mountinfo").write_text(mounts)
        (directory / "maps").write_text(maps)
        if tells_namespace:
            (directory / "ns").mkdir(exist_ok=True)
            (directory / "ns/pid").touch()

    def namespace(self, pid: int) -> int:
        """Returns the PID namespace of a process that tells it."""
        return (self.path / str(pid) / "ns/pid").stat().st_ino
