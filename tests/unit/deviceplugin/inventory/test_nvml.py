"""What NVML says of the GPUs, and what the agent makes of an NVML that does not know."""

import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from deviceplugin.inventory.nvml import NvmlInventory
from deviceplugin.inventory.topology import closeness
from libvgpu.errors import InventoryError

NOT_SUPPORTED, GPU, CPU, SWITCH, STRANGE = 3, 0, 1, 2, 0xFF
FIRST_BUS, SWITCH_BUS = 0x10, 0xC0


class FakeNvml:
    """An NVML with GPUs of the test's own; functions in ``lacking`` are not there.

    Attributes:
        ends: of each GPU its links: the type of the other end and its bus, None for one that is
            off.
        levels: between GPUs, by their indexes.
    """

    class NVMLError(Exception):
        pass

    class NVMLError_GpuIsLost(NVMLError):  # noqa: N801, N818
        pass

    def __init__(
        self,
        ends: list[list[tuple[int, int] | None]],
        levels: dict[tuple[int, int], int] | None = None,
        lacking: tuple[str, ...] = (),
        refusing: tuple[str, ...] = (),
    ) -> None:
        self.ends, self.levels, self.refusing = ends, levels or {}, refusing
        self.lacking, self.depth = lacking, 0

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("nvml"):
            if name in object.__getattribute__(self, "lacking"):
                raise AttributeError(name)
            if name in object.__getattribute__(self, "refusing"):

                def refuse(*arguments: Any) -> Any:
                    raise FakeNvml.NVMLError(NOT_SUPPORTED)

                return refuse
        return object.__getattribute__(self, name)

    def nvmlInit(self) -> None:  # noqa: N802
        self.depth += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.depth -= 1

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.ends)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetUUID(self, handle: int) -> bytes:  # noqa: N802
        return f"G{handle}".encode()

    def nvmlDeviceGetName(self, handle: int) -> str:  # noqa: N802
        return "NVIDIA Test"

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:  # noqa: N802
        return SimpleNamespace(total=1 << 30)

    def nvmlDeviceGetMinorNumber(self, handle: int) -> int:  # noqa: N802
        return 7 - handle

    def nvmlDeviceGetMemoryAffinity(self, handle: int, words: int, scope: int) -> list[int]:  # noqa: N802
        return [0, 1 << handle // 2]

    def nvmlDeviceGetTopologyCommonAncestor(self, one: int, other: int) -> int:  # noqa: N802
        if (one, other) not in self.levels:
            raise self.NVMLError(NOT_SUPPORTED)
        return self.levels[one, other]

    def nvmlDeviceGetPciInfo(self, handle: int) -> Any:  # noqa: N802
        return SimpleNamespace(domain=0, bus=FIRST_BUS + handle, device=0)

    def _end(self, handle: int, link: int) -> tuple[int, int] | None:
        if link >= len(self.ends[handle]):
            raise self.NVMLError(2)
        return self.ends[handle][link]

    def nvmlDeviceGetNvLinkState(self, handle: int, link: int) -> int:  # noqa: N802
        return int(self._end(handle, link) is not None)

    def nvmlDeviceGetNvLinkRemotePciInfo(self, handle: int, link: int) -> Any:  # noqa: N802
        end = self._end(handle, link)
        if end is None or end[0] == STRANGE:
            raise self.NVMLError(NOT_SUPPORTED)
        return SimpleNamespace(domain=0, bus=end[1], device=0)

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, handle: int, link: int) -> int:  # noqa: N802
        end = self._end(handle, link)
        if end is None:
            raise self.NVMLError(NOT_SUPPORTED)
        return end[0]


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    used: list[FakeNvml] = []

    def listing(*arguments: Any, **more: Any) -> list[Any]:
        nvml = FakeNvml(*arguments, **more)
        monkeypatch.setitem(sys.modules, "pynvml", nvml)
        used.append(nvml)
        return list(NvmlInventory().gpus())

    yield listing
    assert [nvml.depth for nvml in used] == [0] * len(used), "NVML is left initialised"


def to(gpu: int) -> tuple[int, int]:
    return GPU, FIRST_BUS + gpu


def table(gpus: list[Any]) -> list[list[int]]:
    return [[gpu.closeness.get(other.uuid, 0) for other in gpus] for gpu in gpus]


def test_a_gpu_says_its_numbers(listed: Any) -> None:
    gpus = listed([[], [], []])

    assert [(g.index, g.uuid, g.minor, g.numa_node) for g in gpus] == [
        (0, "G0", 7, 64),
        (1, "G1", 6, 64),
        (2, "G2", 5, 65),
    ]


def test_direct_links_count_for_the_pair_they_join(listed: Any) -> None:
    levels = dict.fromkeys([(0, 1), (0, 2), (1, 2)], 50)

    gpus = listed([[to(1), to(1), None, to(2)], [to(0), to(0)], [to(0)]], levels)

    two, one, far = closeness(2, 50), closeness(1, 50), closeness(0, 50)
    assert table(gpus) == [[0, two, one], [two, 0, far], [one, far, 0]]


def test_switches_join_all_that_have_links_to_them(listed: Any) -> None:
    fabric = [(SWITCH, SWITCH_BUS), (SWITCH, SWITCH_BUS + 1)]

    gpus = listed([fabric, [*fabric, fabric[0]], fabric[:1], []])

    assert table(gpus)[0][1:] == [
        closeness(2, None),
        closeness(1, None),
        closeness(0, None, (0, 1)),
    ]
    assert table(gpus)[1][2] == closeness(1, None)


def test_direct_links_and_those_to_switches_add_up(listed: Any) -> None:
    switch = (SWITCH, SWITCH_BUS)

    gpus = listed([[to(1), switch, switch], [to(0), switch], [switch]])

    assert table(gpus)[0][1:] == [closeness(2, None), closeness(1, None)]


def test_links_to_cpus_and_to_nowhere_join_nothing(listed: Any) -> None:
    levels = {(0, 1): 30}

    gpus = listed([[(CPU, 0x04), (STRANGE, 0)], [(CPU, 0x04), (STRANGE, 0)]], levels)

    assert table(gpus)[0][1] == closeness(0, 30)


OPTIONAL = (
    "nvmlDeviceGetMinorNumber",
    "nvmlDeviceGetMemoryAffinity",
    "nvmlDeviceGetTopologyCommonAncestor",
    "nvmlDeviceGetPciInfo",
    "nvmlDeviceGetNvLinkState",
    "nvmlDeviceGetNvLinkRemotePciInfo",
    "nvmlDeviceGetNvLinkRemoteDeviceType",
)


@pytest.mark.parametrize("how", ["lacking", "refusing"])
@pytest.mark.parametrize("function", OPTIONAL)
def test_what_nvml_does_not_tell_is_unknown_and_no_error(
    listed: Any, function: str, how: str
) -> None:
    gpus = listed([[to(1)], [to(0)]], {(0, 1): 10}, **{how: (function,)})

    assert [gpu.uuid for gpu in gpus] == ["G0", "G1"]
    assert table(gpus)[0][1] in (closeness(1, 10), closeness(0, 10))
    assert (gpus[0].minor is None) == (function == "nvmlDeviceGetMinorNumber")


def test_an_nvml_that_tells_nothing_gives_gpus_all_the_same(listed: Any) -> None:
    gpus = listed([[to(1)], [to(0)]], lacking=OPTIONAL)

    assert table(gpus) == [[0, 0], [0, 0]]
    assert [(gpu.minor, gpu.numa_node) for gpu in gpus] == [(None, None)] * 2


def test_links_to_a_switch_need_no_bus_of_it(listed: Any) -> None:
    fabric = [(SWITCH, SWITCH_BUS)] * 4

    gpus = listed([fabric, fabric], refusing=("nvmlDeviceGetNvLinkRemotePciInfo",))

    assert table(gpus)[0][1] == closeness(4, None)


def test_what_must_be_known_is_an_error(listed: Any) -> None:
    with pytest.raises(InventoryError, match="NVML fails while listing"):
        listed([[]], refusing=("nvmlDeviceGetUUID",))
