"""What NVML says of the GPUs, and what the agent makes of an NVML that does not know."""

import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from deviceplugin.inventory.gpu_watch import hanging, list_gpus
from deviceplugin.inventory.nvml import NvmlInventory
from deviceplugin.inventory.nvml_calls import CALL_DEADLINE_S, NvmlCalls
from deviceplugin.inventory.topology import closeness
from deviceplugin.model.gpus import GpuListing, MigPart, SickGpu
from libvgpu.errors import DriverReplacedError, InventoryError
from support.waiting import wait_until

NOT_SUPPORTED, NOT_FOUND, DRIVER_NOT_LOADED = 3, 6, 9
GPU_IS_LOST, RESET_REQUIRED, LIB_RM_VERSION_MISMATCH, UNKNOWN = 15, 16, 18, 999
GPU, CPU, SWITCH, STRANGE = 0, 1, 2, 0xFF
FIRST_BUS, SWITCH_BUS = 0x10, 0xC0


@dataclass(frozen=True)
class MigHandle:
    gpu: int
    number: int


class FakeNvml:
    """An NVML with GPUs of the test's own; functions in ``lacking`` are not there.

    Attributes:
        ends: of each GPU its links: the type of the other end and its bus, None for one that is
            off.
        levels: between GPUs, by their indexes.
        failing: the error of a function for one handle, or for ``None``: whoever asks.
        hanging: functions that do not return for one handle.
        parts: names of the MIG devices of each GPU in MIG mode, None where there is no such number.
    """

    class NVMLError(Exception):
        def __init__(self, value: int) -> None:
            super().__init__(f"error {value}")
            self.value = value

    def __init__(
        self,
        ends: list[list[tuple[int, int] | None]],
        levels: dict[tuple[int, int], int] | None = None,
        lacking: tuple[str, ...] = (),
        refusing: tuple[str, ...] = (),
        failing: dict[tuple[str, Any], int] | None = None,
        parts: dict[int, list[str | None]] | None = None,
    ) -> None:
        self.ends, self.levels = ends, levels or {}
        self.lacking, self.depth, self.parts = lacking, 0, parts or {}
        self.hanging: set[tuple[Any, ...]] = set()
        self.hung_calls = 0
        self.failing = {(name, None): NOT_SUPPORTED for name in refusing} | (failing or {})

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("nvml"):
            if name in object.__getattribute__(self, "lacking"):
                raise AttributeError(name)
            failing = object.__getattribute__(self, "failing")
            function = object.__getattribute__(self, name)

            def call(*arguments: Any) -> Any:
                if (name, *arguments[:1]) in self.hanging:
                    self.hung_calls += 1
                while (name, *arguments[:1]) in self.hanging:
                    time.sleep(0.002)
                for handle in (None, *arguments[:1]):
                    if (name, handle) in failing:
                        raise FakeNvml.NVMLError(failing[name, handle])
                return function(*arguments)

            return call
        return object.__getattribute__(self, name)

    def nvmlInit(self) -> None:  # noqa: N802
        self.depth += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.depth -= 1

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.ends)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetUUID(self, handle: Any) -> bytes:  # noqa: N802
        if isinstance(handle, MigHandle):
            return f"MIG-{handle.gpu}{handle.number}".encode()
        return f"G{handle}".encode()

    def nvmlDeviceGetName(self, handle: Any) -> str:  # noqa: N802
        if isinstance(handle, MigHandle):
            return self.parts[handle.gpu][handle.number] or ""
        return "NVIDIA Test"

    def nvmlDeviceGetMemoryInfo(self, handle: Any) -> Any:  # noqa: N802
        return SimpleNamespace(total=1 << (27 if isinstance(handle, MigHandle) else 30))

    def nvmlSystemGetDriverVersion(self) -> bytes:  # noqa: N802
        return b"580.65.06"

    def nvmlSystemGetCudaDriverVersion_v2(self) -> int:  # noqa: N802
        return 13020

    def nvmlDeviceGetCudaComputeCapability(self, handle: int) -> tuple[int, int]:  # noqa: N802
        return 8, 6

    def nvmlDeviceGetArchitecture(self, handle: int) -> int:  # noqa: N802
        return 7 + handle

    def nvmlDeviceGetMigMode(self, handle: int) -> list[int]:  # noqa: N802
        return [int(handle in self.parts), 0]

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: int) -> int:  # noqa: N802
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: int, number: int) -> MigHandle:  # noqa: N802
        names = self.parts[handle]
        if number >= len(names) or names[number] is None:
            raise self.NVMLError(NOT_FOUND)
        return MigHandle(handle, number)

    def nvmlDeviceGetGpuInstanceId(self, handle: MigHandle) -> int:  # noqa: N802
        return handle.number + 7

    def nvmlDeviceGetComputeInstanceId(self, handle: MigHandle) -> int:  # noqa: N802
        return handle.number % 2

    def nvmlDeviceGetAttributes_v2(self, handle: MigHandle) -> Any:  # noqa: N802
        return SimpleNamespace(
            multiprocessorCount=14,
            sharedCopyEngineCount=1,
            sharedDecoderCount=2,
            sharedEncoderCount=3,
            sharedJpegCount=4,
            sharedOfaCount=5,
            gpuInstanceSliceCount=3,
            computeInstanceSliceCount=1,
        )

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
def listing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    used: list[FakeNvml] = []

    def of(*arguments: Any, **more: Any) -> GpuListing:
        nvml = FakeNvml(*arguments, **more)
        monkeypatch.setitem(sys.modules, "pynvml", nvml)
        used.append(nvml)
        return NvmlInventory().listing()

    yield of
    assert [nvml.depth for nvml in used] == [0] * len(used), "NVML is left initialised"


@pytest.fixture
def listed(listing: Any) -> Any:
    def gpus(*arguments: Any, **more: Any) -> list[Any]:
        found = listing(*arguments, **more)
        assert found.sick == ()
        return list(found.gpus)

    return gpus


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


NEEDED = (
    "nvmlDeviceGetHandleByIndex",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetName",
    "nvmlDeviceGetMemoryInfo",
)


@pytest.mark.parametrize("error", [GPU_IS_LOST, RESET_REQUIRED, UNKNOWN])
@pytest.mark.parametrize("function", NEEDED)
def test_a_gpu_that_nvml_fails_for_is_left_out_alone(
    listing: Any, function: str, error: int
) -> None:
    found = listing([[to(2)], [], [to(0)]], failing={(function, 1): error})

    assert [gpu.uuid for gpu in found.gpus] == ["G0", "G2"]
    assert [gpu.index for gpu in found.gpus] == [0, 2]
    is_known = NEEDED.index(function) > 1
    assert found.sick == (SickGpu(1, "G1" if is_known else "", f"NVML says: error {error}"),)
    assert found.gpus[0].closeness == {"G2": closeness(1, None)}


@pytest.mark.parametrize("how", ["lacking", "refusing"])
@pytest.mark.parametrize("function", ["nvmlDeviceGetName", "nvmlDeviceGetMemoryInfo"])
def test_a_gpu_of_which_nvml_cannot_tell_name_or_memory_is_there(
    listed: Any, function: str, how: str
) -> None:
    gpus = listed([[], []], **{how: (function,)})

    assert [gpu.uuid for gpu in gpus] == ["G0", "G1"]
    no_name = function == "nvmlDeviceGetName"
    assert (gpus[0].name, gpus[0].memory_bytes) == (("", 1 << 30) if no_name else (gpus[0].name, 0))


class LateNvml:
    """An inventory on whose clock a call that hangs is late at once, and no other ever."""

    def __init__(self, nvml: FakeNvml) -> None:
        self.nvml = nvml
        self.inventory = NvmlInventory(NvmlCalls(clock=self._clock))

    def _clock(self) -> float:
        return self.nvml.hung_calls * CALL_DEADLINE_S * 2


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> Iterator[LateNvml]:
    nvml = FakeNvml([[to(2)], [], [to(0)]], parts={1: CUT})
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    yield LateNvml(nvml)
    nvml.hanging = set()
    wait_until(lambda: nvml.depth == 0)


@pytest.mark.parametrize(
    ("function", "is_known"),
    [("nvmlDeviceGetHandleByIndex", False), ("nvmlDeviceGetName", True)],
)
def test_a_gpu_that_a_call_hangs_for_is_left_out_alone_until_it_returns(
    late: LateNvml, function: str, is_known: bool
) -> None:
    late.nvml.hanging = {(function, 1)}

    for _ in range(3):
        found = late.inventory.listing()
        assert [gpu.uuid for gpu in found.gpus] == ["G0", "G2"]
        (sick,) = found.sick
        assert (sick.index, sick.uuid, sick.hangs) == (1, "G1" if is_known else "", True)
        assert sick.reason == "a call of NVML for it does not return"
    assert found.gpus[0].closeness == {"G2": closeness(1, None)}
    assert sum(thread.name == "nvml" for thread in threading.enumerate()) == 1
    assert hanging(found, late.inventory.gpus()) == {}, "it is not known yet"

    late.nvml.hanging = set()
    wait_until(lambda: [gpu.uuid for gpu in late.inventory.gpus()] == ["G0", "G1", "G2"])
    known = late.inventory.gpus()
    late.nvml.hanging = {("nvmlDeviceGetMigMode", 1)}
    found = late.inventory.listing()
    assert found.sick[0].uuid == "G1"
    assert hanging(found, known).keys() == {"G1", "MIG-10", "MIG-12", "MIG-13"}


def test_gpus_are_there_although_it_is_not_known_how_close_they_are(
    late: LateNvml, caplog: pytest.LogCaptureFixture
) -> None:
    late.nvml.hanging = {("nvmlDeviceGetNvLinkState", 0)}

    for _ in range(3):
        found = late.inventory.listing()
        assert [(gpu.uuid, gpu.closeness) for gpu in found.gpus] == [
            ("G0", {}),
            ("G1", {}),
            ("G2", {}),
        ]
    assert found.sick == ()
    assert caplog.text.count("is not known") == 1

    late.nvml.hanging = set()
    wait_until(lambda: late.inventory.gpus()[0].closeness)


def test_an_nvml_that_does_not_open_is_an_error_and_opens_later(late: LateNvml) -> None:
    late.nvml.hanging = {("nvmlInit",)}

    for _ in range(3):
        with pytest.raises(InventoryError, match="NVML does not answer: a call does not return"):
            late.inventory.listing()
    assert sum(thread.name == "nvml" for thread in threading.enumerate()) == 1

    late.nvml.hanging = set()
    wait_until(lambda: not isinstance(list_gpus(late.inventory), InventoryError))


FACTS = (
    "nvmlDeviceGetMinorNumber",
    "nvmlDeviceGetMemoryAffinity",
    "nvmlDeviceGetCudaComputeCapability",
    "nvmlDeviceGetArchitecture",
    "nvmlDeviceGetMigMode",
)


@pytest.mark.parametrize("error", [GPU_IS_LOST, RESET_REQUIRED])
@pytest.mark.parametrize("function", FACTS)
def test_a_gpu_that_is_lost_in_the_midst_is_left_out(
    listing: Any, function: str, error: int
) -> None:
    found = listing([[], []], failing={(function, 0): error})

    assert [gpu.uuid for gpu in found.gpus] == ["G1"]
    assert found.sick == (SickGpu(0, "G0", f"NVML says: error {error}"),)


def test_a_gpu_says_versions_and_architecture(listed: Any) -> None:
    first, second, third = listed([[], [], []], failing={("nvmlDeviceGetArchitecture", 2): 3})

    assert (first.driver, first.cuda_version) == ("580.65.06", (13, 2))
    assert (first.compute_major, first.compute_minor) == (8, 6)
    assert [g.architecture for g in (first, second, third)] == ["ampere", "ada-lovelace", ""]


def test_a_gpu_without_mig_can_not_be_cut(listed: Any) -> None:
    without, able = listed([[], []], failing={("nvmlDeviceGetMigMode", 0): NOT_SUPPORTED})

    assert (without.is_mig_capable, without.is_mig_enabled) == (False, False)
    assert (able.is_mig_capable, able.is_mig_enabled, able.mig_devices) == (True, False, ())


def test_a_gpu_whose_mig_mode_is_unknown_is_not_given_whole(listing: Any) -> None:
    found = listing([[], []], failing={("nvmlDeviceGetMigMode", 0): UNKNOWN})

    assert [gpu.uuid for gpu in found.gpus] == ["G1"]
    assert found.sick == (SickGpu(0, "G0", f"NVML says: error {UNKNOWN}"),)


CUT: list[str | None] = [
    "NVIDIA A100 MIG 3g.20gb",
    None,
    "NVIDIA A100 MIG 1c.3g.20gb",
    "NVIDIA A100 MIG 1g.5gb+me",
]


def test_mig_devices_are_gpus_of_their_own(listed: Any) -> None:
    cut, _ = listed([[to(1)], [to(0)]], parts={0: CUT})

    assert (cut.is_mig_capable, cut.is_mig_enabled, cut.memory_bytes) == (True, True, 1 << 30)
    assert [part.uuid for part in cut.mig_devices] == ["MIG-00", "MIG-02", "MIG-03"]
    part = cut.mig_devices[1]
    assert (part.index, part.minor, part.numa_node, part.memory_bytes) == (0, 7, 64, 1 << 27)
    assert (part.is_mig_capable, part.is_mig_enabled, part.mig_devices) == (False, False, ())
    assert part.closeness == cut.closeness == {"G1": closeness(1, None)}
    assert part.mig == MigPart(
        parent_uuid="G0",
        number=2,
        profile="1c.3g.20gb",
        gpu_instance=9,
        compute_instance=0,
        multiprocessors=14,
        gpu_slices=3,
        compute_slices=1,
        copy_engines=1,
        decoders=2,
        encoders=3,
        jpeg_engines=4,
        optical_flow_engines=5,
    )


@pytest.mark.parametrize("how", ["lacking", "refusing"])
def test_without_attributes_the_profile_says_the_slices(listed: Any, how: str) -> None:
    (cut,) = listed([[]], parts={0: CUT}, **{how: ("nvmlDeviceGetAttributes_v2",)})

    slices = [(p.mig.profile, p.mig.gpu_slices, p.mig.compute_slices) for p in cut.mig_devices]
    assert slices == [("3g.20gb", 3, 3), ("1c.3g.20gb", 3, 1), ("1g.5gb+me", 1, 1)]


MIG_FACTS = (
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetName",
    "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetGpuInstanceId",
    "nvmlDeviceGetComputeInstanceId",
)


@pytest.mark.parametrize("function", MIG_FACTS)
def test_a_mig_device_that_nvml_fails_for_is_left_out_alone(listing: Any, function: str) -> None:
    found = listing([[], []], parts={0: CUT}, failing={(function, MigHandle(0, 2)): UNKNOWN})

    assert [gpu.uuid for gpu in found.gpus] == ["G0", "G1"]
    assert [part.uuid for part in found.gpus[0].mig_devices] == ["MIG-00", "MIG-03"]
    uuid = "" if function == "nvmlDeviceGetUUID" else "MIG-02"
    assert found.sick == (SickGpu(0, uuid, f"of MIG device 2 NVML says: error {UNKNOWN}"),)


def test_a_mig_device_without_a_profile_is_left_out(listing: Any) -> None:
    found = listing([[]], parts={0: ["A100 MIG", "A100 MIG 1g.5gb"]})

    assert [part.uuid for part in found.gpus[0].mig_devices] == ["MIG-01"]
    assert "'A100 MIG' of MIG device 0 does not end in a MIG profile" in found.sick[0].reason


def test_an_nvml_that_does_not_start_is_an_error(listing: Any) -> None:
    with pytest.raises(InventoryError, match="cannot be listed: NVML says") as caught:
        listing([[]], failing={("nvmlInit", None): DRIVER_NOT_LOADED})
    assert not isinstance(caught.value, DriverReplacedError)


def test_a_replaced_driver_is_told_apart(listing: Any) -> None:
    with pytest.raises(DriverReplacedError, match="cannot be listed: NVML says"):
        listing([[]], failing={("nvmlInit", None): LIB_RM_VERSION_MISMATCH})


def test_an_nvml_that_cannot_count_is_an_error(listing: Any) -> None:
    with pytest.raises(InventoryError, match="NVML fails while listing"):
        listing([[]], failing={("nvmlDeviceGetCount", None): UNKNOWN})


def test_how_close_gpus_are_is_asked_again_only_when_others_are_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nvml = FakeNvml([[to(1)], [to(0)], []])
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    inventory, joined = NvmlInventory(), closeness(1, None)

    def links() -> dict[str, int]:
        return dict(inventory.gpus()[0].closeness)

    assert links().get("G1") == joined
    nvml.ends[0] = [None]
    assert links().get("G1") == joined
    nvml.failing = {("nvmlDeviceGetUUID", 1): UNKNOWN}
    assert "G1" not in links()
    nvml.failing = {}
    nvml.ends[0] = [to(1), to(1)]
    assert links().get("G1") == closeness(2, None)
