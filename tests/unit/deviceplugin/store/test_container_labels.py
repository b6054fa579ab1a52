"""SELinux labels of what goes into containers, with a kernel and attributes of the test's own."""

import errno
import logging
from pathlib import Path

import pytest

from deviceplugin.store.container_labels import LABEL, ContainerLabels
from deviceplugin.store.slice_files import SliceStore
from deviceplugin.store.spare_files import SpareFiles
from libvgpu.limits import ComputeMode, ContainerLimits, DeviceLimit, Family

LIMITS = ContainerLimits(
    "0123456789ab", Family.VGPU, (DeviceLimit("GPU-1", 1 << 30, 30, ComputeMode.STRICT),)
)


class Kernel:
    """What SELinux knows: whether it enforces, and the labels that were set."""

    def __init__(self, folder: Path, enforces: str = "1") -> None:
        self.file = folder / "enforce"
        self.file.write_text(enforces)
        self.labelled: dict[str, bytes] = {}
        self.error = 0

    def set_attribute(self, path: str, name: str, value: bytes) -> None:
        if self.error:
            raise OSError(self.error, "it says no")
        assert name == "security.selinux"
        assert Path(path).exists()
        self.labelled[path] = value

    def labels(self, *before: Path) -> ContainerLabels:
        return ContainerLabels((*before, self.file), self.set_attribute)


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    return Kernel(tmp_path)


def test_everything_below_is_labelled(kernel: Kernel, tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/limits").touch()

    kernel.labels().mark(tmp_path / "a")

    assert kernel.labelled == dict.fromkeys(
        (f"{tmp_path}/a", f"{tmp_path}/a/b", f"{tmp_path}/a/b/limits"), LABEL
    )


@pytest.mark.parametrize("enforces", ["0", "", "0\n"])
def test_nothing_is_labelled_where_nothing_enforces(tmp_path: Path, enforces: str) -> None:
    kernel = Kernel(tmp_path, enforces)

    kernel.labels().mark(tmp_path)

    assert kernel.labelled == {}


def test_a_node_without_selinux_has_no_labels(kernel: Kernel, tmp_path: Path) -> None:
    kernel.file.unlink()

    kernel.labels().mark(tmp_path)

    assert kernel.labelled == {}


def test_the_kernels_file_may_be_seen_in_another_place(kernel: Kernel, tmp_path: Path) -> None:
    assert kernel.labels(tmp_path / "missing").is_enforcing()


def test_a_failure_is_said_once(
    kernel: Kernel, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "deviceplugin")
    kernel.error = errno.EOPNOTSUPP
    labels = kernel.labels()

    labels.mark(tmp_path)
    labels.mark(tmp_path)

    (said,) = caplog.records
    assert said.levelno == logging.ERROR
    assert said.__dict__["fields"]["file"] == str(tmp_path)


def test_a_file_that_is_gone_is_no_failure(
    kernel: Kernel, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kernel.error = errno.ENOENT

    kernel.labels().mark(tmp_path)

    assert caplog.records == []


def test_spare_files_and_fresh_ones_are_labelled_before_they_are_used(
    kernel: Kernel, tmp_path: Path
) -> None:
    files = SpareFiles(tmp_path / "run", count=1, labels=kernel.labels())
    (tmp_path / "run").mkdir()
    files.prepare()
    files.fill()
    made = [path.rpartition("/")[2] for path in kernel.labelled]
    assert {"limits", "usage", "ring"} <= set(made)

    files.make(LIMITS)  # takes the one set
    kernel.labelled.clear()
    fresh = files.make(LIMITS)

    assert {f"{fresh}/{name}" for name in ("limits", "usage", "ring")} <= kernel.labelled.keys()


def test_what_an_agent_finds_when_it_starts_is_labelled(kernel: Kernel, tmp_path: Path) -> None:
    SliceStore(tmp_path / "r", tmp_path / "s", labels=Kernel(tmp_path, "0").labels()).prepare()
    kernel.file.write_text("1")
    (tmp_path / "r/allocations/0123456789ab").mkdir()
    (tmp_path / "r/allocations/0123456789ab/limits").touch()

    store = SliceStore(tmp_path / "r", tmp_path / "s", labels=kernel.labels())
    store.prepare()

    build = store.builds.directory(store.build)
    assert {
        f"{tmp_path}/r/allocations/0123456789ab/limits",
        f"{build}/libvgpu.so",
        f"{build}/ld.so.preload",
    } <= kernel.labelled.keys()
