"""What is made of NVML's lists: a process once, figures that it lacks, GPUs that do not answer."""

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from deviceplugin.watch.nvml_processes import GpuReading, read_gpus
from libvgpu.errors import InventoryError

Lists = dict[str, list[tuple[int, int | None]]]


class FakeProcessNvml(ModuleType):
    """Just what is asked for."""

    class NVMLError(Exception): ...

    class NVMLError_FunctionNotFound(NVMLError): ...  # noqa: N801, N818 - as NVML's bindings have it

    class NVMLError_NotSupported(NVMLError): ...  # noqa: N801, N818

    class NVMLError_InsufficientSize(NVMLError): ...  # noqa: N801, N818

    def __init__(self, gpus: dict[str, Lists], newest: str = "_v3") -> None:
        super().__init__("pynvml")
        self.gpus, self.newest, self.opened, self.grows = gpus, newest, 0, 0
        for name in ("Compute", "Graphics", "MPSCompute"):
            for version in ("_v2", "_v3"):
                setattr(
                    self,
                    f"nvmlDeviceGet{name}RunningProcesses{version}",
                    lambda handle, n=name, v=version: self._list(handle, n, v),
                )

    def nvmlInit(self) -> None:  # noqa: N802
        self.opened += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.opened -= 1

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:  # noqa: N802
        if uuid not in self.gpus:
            raise self.NVMLError("GPU is lost")
        return uuid

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> Any:  # noqa: N802
        return SimpleNamespace(used=1000)

    def _list(self, handle: str, name: str, version: str) -> list[Any]:
        if version > self.newest:
            raise self.NVMLError_FunctionNotFound
        if self.grows:
            self.grows -= 1
            raise self.NVMLError_InsufficientSize
        found = self.gpus[handle].get(name, [])
        return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in found]


def read(
    nvml: FakeProcessNvml, monkeypatch: pytest.MonkeyPatch, *uuids: str
) -> dict[str, GpuReading]:
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    found = read_gpus(uuids)
    assert nvml.opened == 0
    return found


@pytest.mark.parametrize("newest", ["_v2", "_v3"])
def test_a_process_of_several_lists_counts_once(
    monkeypatch: pytest.MonkeyPatch, newest: str
) -> None:
    lists: Lists = {
        "Compute": [(1, 100), (2, 50)],
        "Graphics": [(1, 100)],
        "MPSCompute": [(2, 60), (3, 7)],
    }

    found = read(FakeProcessNvml({"A": lists}, newest), monkeypatch, "A")

    assert found == {"A": GpuReading({1: 100, 2: 60, 3: 7}, 1000)}


def test_a_figure_that_nvml_lacks_is_none_unless_another_list_has_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lists: Lists = {"Compute": [(1, None), (2, None)], "Graphics": [(2, 5), (1, None)]}

    found = read(FakeProcessNvml({"A": lists}), monkeypatch, "A")

    assert found["A"].memory_bytes == {1: None, 2: 5}


def test_a_gpu_that_does_not_answer_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    found = read(FakeProcessNvml({"A": {}}), monkeypatch, "A", "LOST")

    assert found == {"A": GpuReading({}, None)}


def test_a_list_that_grows_meanwhile_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = FakeProcessNvml({"A": {"Compute": [(1, 5)]}})
    nvml.grows = 1

    assert read(nvml, monkeypatch, "A")["A"].memory_bytes == {1: 5}


def test_without_nvml_there_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = FakeProcessNvml({})

    def fail() -> None:
        raise nvml.NVMLError("Driver Not Loaded")

    monkeypatch.setattr(nvml, "nvmlInit", fail)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    with pytest.raises(InventoryError, match="cannot be listed: NVML says Driver Not Loaded"):
        read_gpus(["A"])
