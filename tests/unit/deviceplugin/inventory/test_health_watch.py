"""The health watch on an NVML of the test's own: one GPU's error is that GPU's alone."""

import ctypes
import logging
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from deviceplugin.inventory.counted_xids import CountedXids
from deviceplugin.inventory.health_watch import HealthWatch
from deviceplugin.inventory.nvml_calls import CALL_DEADLINE_S
from deviceplugin.inventory.watched_gpu import ANY_INSTANCE
from support.waiting import wait_until

FIRST, SECOND, STRANGER = 0x1000, 0x2000, 0x9000
GPUS = {"GPU-1": FIRST, "GPU-2": SECOND}
MIG_DEVICES = {"MIG-1": (FIRST, 1, 0), "MIG-2": (FIRST, 2, 0)}
XID, OTHER_EVENT, UNKNOWN = 8, 2, 999
DOUBLE_BIT_ERROR, PAGE_FAULT = 48, 31


class FakeNvml:
    """NVML with two GPUs, the first of which has two MIG devices.

    Attributes:
        failing: functions that fail, with the UUID they fail for.
        hanging: functions that do not return as long as they are here.
        opened: how often it was opened that was closed.
        events: what the next waits answer.
    """

    NVML_SUCCESS = 0
    NVML_FI_DEV_GET_GPU_RECOVERY_ACTION = 230
    nvmlEventTypeXidCriticalError = XID  # noqa: N815

    class NVMLError(Exception):
        def __init__(self, value: int = UNKNOWN) -> None:
            super().__init__(f"error {value}")
            self.value = value

    class NVMLError_Timeout(NVMLError):  # noqa: N801, N818
        pass

    def __init__(self) -> None:
        self.failing: set[tuple[str, str]] = set()
        self.hanging: set[tuple[str, str]] = set()
        self.events: list[Any] = []
        self.registered: list[int] = []
        self.opened = self.waits = self.depth = 0
        self.lock = threading.Lock()

    def nvmlInit(self) -> None:  # noqa: N802
        self._check("init", "")
        with self.lock:
            if not self.depth:
                self.opened += 1
                self.registered = []
            self.depth += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        with self.lock:
            self.depth -= 1

    def _check(self, function: str, uuid: str) -> None:
        while (function, uuid) in self.hanging:
            time.sleep(0.002)
        if (function, uuid) in self.failing:
            raise self.NVMLError

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> Any:  # noqa: N802
        self._check("handle", uuid)
        return uuid if uuid in MIG_DEVICES else ctypes.c_void_p(GPUS[uuid])

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, handle: str) -> Any:  # noqa: N802
        return ctypes.c_void_p(MIG_DEVICES[handle][0])

    def nvmlDeviceGetGpuInstanceId(self, handle: str) -> int:  # noqa: N802
        return MIG_DEVICES[handle][1]

    def nvmlDeviceGetComputeInstanceId(self, handle: str) -> int:  # noqa: N802
        return MIG_DEVICES[handle][2]

    def nvmlDeviceGetMemoryInfo(self, handle: Any) -> None:  # noqa: N802
        self._check("memory", uuid_of(handle))

    def nvmlDeviceGetUUID(self, handle: Any) -> str:  # noqa: N802
        self._check("uuid", uuid_of(handle))
        return uuid_of(handle)

    def nvmlDeviceGetFieldValues(self, handle: Any, fields: list[int]) -> list[Any]:  # noqa: N802
        value = int(("recovery", uuid_of(handle)) in self.failing)
        return [SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(uiVal=value))]

    def nvmlEventSetCreate(self) -> object:  # noqa: N802
        return object()

    def nvmlEventSetFree(self, events: object) -> None:  # noqa: N802
        pass

    def nvmlDeviceRegisterEvents(self, handle: Any, kinds: int, events: object) -> None:  # noqa: N802
        self._check("register", uuid_of(handle))
        self.registered.append(handle.value)

    def nvmlEventSetWait_v2(self, events: object, timeout_ms: int) -> Any:  # noqa: N802
        for address in self.registered:
            self._check("wait", uuid_of(ctypes.c_void_p(address)))
        self.waits += 1
        if not self.events:
            time.sleep(timeout_ms / 1000)
            raise self.NVMLError_Timeout
        event = self.events.pop(0)
        if isinstance(event, Exception):
            raise event
        return event


def uuid_of(handle: Any) -> str:
    if isinstance(handle, str):
        return handle
    return {address: uuid for uuid, address in GPUS.items()}.get(handle.value, "stranger")


def event(
    address: int,
    xid: int = DOUBLE_BIT_ERROR,
    gpu_instance: int = ANY_INSTANCE,
    compute_instance: int = ANY_INSTANCE,
    kind: int = XID,
) -> Any:
    return SimpleNamespace(
        device=ctypes.c_void_p(address),
        eventType=kind,
        eventData=xid,
        gpuInstanceId=gpu_instance,
        computeInstanceId=compute_instance,
    )


class Watched:
    """A watch that runs, and what it told last."""

    def __init__(self, nvml: FakeNvml, *uuids: str, xids: CountedXids | None = None) -> None:
        self.nvml, self.told = nvml, {}  # type: FakeNvml, Mapping[str, str]
        self.now_s, self.turns, self.is_read = 0.0, 0, False
        self.elsewhere: dict[str, str] = {}
        self.watch = HealthWatch(
            uuids,
            self._take,
            poll_s=0.02,
            counts=(xids or CountedXids()).counts,
            hanging=lambda: self.elsewhere,
            turned=self._turn,
            clock=self._clock,
        )
        self.watch.start()
        wait_until(lambda: nvml.waits)

    def _take(self, unhealthy: Mapping[str, str]) -> None:
        self.told = unhealthy

    def _turn(self) -> None:
        self.turns += 1

    def _clock(self) -> float:
        self.is_read = True
        return self.now_s

    def wait_for_calls_that_are_late(self, *uuids: str) -> None:
        """Has the deadlines of calls pass until these GPUs are unhealthy, and no others.

        Time goes on where it is asked for, so that none of it is missed on a busy machine.
        """

        def is_so() -> bool:
            if self.is_read:
                self.is_read = False
                self.now_s += CALL_DEADLINE_S / 4
            return set(self.told) == set(uuids)

        wait_until(is_so)

    def settle(self) -> None:
        """Waits until what was given to NVML by now has been acted upon."""
        wait_until(lambda: not self.nvml.events)
        waits, turns = self.nvml.waits, self.turns
        wait_until(lambda: self.nvml.waits > waits + 3 and self.turns > turns + 2)

    def xids(self) -> set[str]:
        """Returns whom the events that were given so far withdraw."""
        self.settle()
        return {uuid for uuid, why in self.told.items() if why.startswith("XID")}


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    fake = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    return fake


@pytest.fixture
def watched(nvml: FakeNvml) -> Iterator[Any]:
    made: list[Watched] = []

    def make(*uuids: str, xids: CountedXids | None = None) -> Watched:
        made.append(Watched(nvml, *uuids, xids=xids))
        return made[-1]

    yield make
    nvml.hanging = set()
    for each in made:
        each.watch.stop()
    wait_until(lambda: not threads("health", "nvml", "nvml events"))


def threads(*names: str) -> int:
    return sum(thread.name in names for thread in threading.enumerate())


@pytest.mark.parametrize("function", ["handle", "memory", "recovery"])
def test_whatever_nvml_says_of_one_gpu_withdraws_it_alone_until_it_is_well(
    watched: Any, function: str
) -> None:
    gpus = watched("GPU-1", "GPU-2")
    assert gpus.told == {}

    gpus.nvml.failing = {(function, "GPU-2")}
    if function == "handle":  # asked for when NVML is opened
        gpus.watch.look_closer()
    wait_until(lambda: set(gpus.told) == {"GPU-2"})

    gpus.nvml.failing = set()
    wait_until(lambda: gpus.told == {})


def test_a_gpu_that_fails_is_not_waited_for_and_others_are(nvml: FakeNvml, watched: Any) -> None:
    nvml.failing = {("memory", "GPU-1")}
    gpus = watched("GPU-1", "GPU-2")
    wait_until(lambda: "GPU-1" in gpus.told)

    wait_until(lambda: gpus.nvml.registered == [SECOND])
    gpus.nvml.events.append(event(SECOND))
    wait_until(lambda: gpus.told.get("GPU-2") == "XID 48 was reported")
    assert gpus.told["GPU-1"] == "NVML says: error 999"


def test_nvml_is_opened_again_when_asked(watched: Any) -> None:
    gpus = watched("GPU-1")
    before = gpus.nvml.opened

    gpus.watch.look_closer()

    wait_until(lambda: gpus.nvml.opened > before)
    gpus.settle()
    again = gpus.nvml.opened
    gpus.settle()
    assert gpus.nvml.opened == again


def test_an_error_of_a_wait_is_no_gpus_while_all_answer(watched: Any) -> None:
    gpus = watched("GPU-1", "GPU-2")

    gpus.nvml.events.append(FakeNvml.NVMLError())

    gpus.settle()
    assert gpus.told == {}


@pytest.mark.parametrize(
    ("kind", "xid", "withdrawn"),
    [
        (XID, DOUBLE_BIT_ERROR, {"GPU-1"}),
        (XID, PAGE_FAULT, set()),
        (OTHER_EVENT, DOUBLE_BIT_ERROR, set()),
    ],
)
def test_a_critical_error_withdraws_its_gpu(
    watched: Any, kind: int, xid: int, withdrawn: set[str]
) -> None:
    gpus = watched("GPU-1", "GPU-2")

    gpus.nvml.events.append(event(FIRST, xid, kind=kind))

    assert gpus.xids() == withdrawn


def test_what_counts_is_for_others_to_say(watched: Any) -> None:
    gpus = watched("GPU-1", "GPU-2", xids=CountedXids(enabled=frozenset({PAGE_FAULT})))

    gpus.nvml.events.append(event(FIRST, PAGE_FAULT))

    assert gpus.xids() == {"GPU-1"}


@pytest.mark.parametrize(
    ("instances", "withdrawn"),
    [
        ((ANY_INSTANCE, ANY_INSTANCE), {"MIG-1", "MIG-2"}),
        ((2, 0), {"MIG-2"}),
        ((2, ANY_INSTANCE), {"MIG-2"}),
        ((5, 0), set()),  # of a MIG device that is not followed
    ],
)
def test_an_error_withdraws_the_mig_devices_that_it_names(
    watched: Any, instances: tuple[int, int], withdrawn: set[str]
) -> None:
    gpus = watched("MIG-1", "MIG-2", "GPU-2")
    assert sorted(gpus.nvml.registered) == [FIRST, SECOND]  # a GPU once, not once a MIG device

    gpus.nvml.events.append(event(FIRST, DOUBLE_BIT_ERROR, *instances))

    assert gpus.xids() == withdrawn


def test_an_error_of_a_gpu_that_is_not_followed_is_nobodys(watched: Any) -> None:
    gpus = watched("GPU-1")

    gpus.nvml.events.append(event(SECOND))

    assert gpus.xids() == set()


@pytest.mark.parametrize(
    ("also", "withdrawn"),
    [(set(), {"GPU-1", "GPU-2"}), ({("memory", "GPU-2")}, set())],
)
def test_an_error_that_nvml_cannot_place_is_of_the_gpu_that_fails_or_of_any(
    watched: Any, also: set[tuple[str, str]], withdrawn: set[str]
) -> None:
    gpus = watched("GPU-1", "GPU-2")

    gpus.nvml.failing = {("uuid", "stranger"), *also}
    gpus.nvml.events.append(event(STRANGER))

    assert gpus.xids() == withdrawn
    assert set(gpus.told) == withdrawn | {uuid for _, uuid in also}


@pytest.mark.parametrize("function", ["handle", "memory", "register"])
def test_a_call_that_does_not_return_withdraws_its_gpu_alone_and_the_others_are_followed(
    watched: Any, function: str
) -> None:
    gpus = watched("GPU-1", "GPU-2")

    gpus.nvml.hanging = {(function, "GPU-1")}
    gpus.watch.look_closer()
    gpus.wait_for_calls_that_are_late("GPU-1")
    assert gpus.told == {"GPU-1": "a call of NVML for it does not return"}

    gpus.nvml.failing = {("memory", "GPU-2")}
    wait_until(lambda: set(gpus.told) == {"GPU-1", "GPU-2"})
    gpus.nvml.failing = set()
    wait_until(lambda: set(gpus.told) == {"GPU-1"})
    gpus.settle()
    gpus.nvml.events.append(event(SECOND))
    wait_until(lambda: gpus.told.get("GPU-2") == "XID 48 was reported")

    gpus.nvml.hanging = set()
    wait_until(lambda: "GPU-1" not in gpus.told)


def test_a_gpu_is_not_asked_again_by_more_and_more_threads(watched: Any) -> None:
    gpus = watched("GPU-1", "GPU-2")

    gpus.nvml.hanging = {("memory", "GPU-1")}
    gpus.wait_for_calls_that_are_late("GPU-1")

    before = gpus.turns
    wait_until(lambda: gpus.turns > before + 10)
    assert threads("nvml") <= 2, "one hangs, and one asks"


def test_what_waits_for_a_call_that_hangs_is_told_as_such(watched: Any) -> None:
    gpus = watched("GPU-1", "GPU-2")

    gpus.nvml.hanging = {("memory", "GPU-1"), ("memory", "GPU-2")}
    gpus.wait_for_calls_that_are_late("GPU-1", "GPU-2")

    assert gpus.told["GPU-2"] == (
        "a call of NVML for it does not return while one for GPU GPU-1 hangs, which NVML may wait "
        "for"
    )
    gpus.nvml.hanging = set()
    wait_until(lambda: gpus.told == {})


def test_an_nvml_that_does_not_open_withdraws_all_until_it_does(watched: Any) -> None:
    gpus = watched("GPU-1", "GPU-2")

    gpus.nvml.hanging = {("init", "")}
    gpus.wait_for_calls_that_are_late("GPU-1", "GPU-2")
    assert gpus.told["GPU-1"] == "NVML does not answer: a call does not return"
    before = gpus.turns
    wait_until(lambda: gpus.turns > before + 5)
    assert threads("nvml", "nvml events") <= 2

    gpus.nvml.hanging = set()
    wait_until(lambda: gpus.told == {})


def test_an_nvml_that_waits_for_a_call_of_one_gpu_is_told_as_such(watched: Any) -> None:
    gpus = watched("GPU-1", "GPU-2")
    gpus.nvml.hanging = {("memory", "GPU-1")}
    gpus.wait_for_calls_that_are_late("GPU-1")

    gpus.nvml.hanging = {("memory", "GPU-1"), ("init", "")}
    gpus.wait_for_calls_that_are_late("GPU-1", "GPU-2")
    wait_until(lambda: "may wait" in gpus.told["GPU-2"])
    assert gpus.told["GPU-2"] == (
        "NVML does not answer: it may wait for one for GPU GPU-1 that does not return"
    )

    gpus.nvml.hanging = set()
    wait_until(lambda: gpus.told == {})


def test_a_wait_for_events_that_does_not_return_withdraws_nobody(
    watched: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "deviceplugin")
    gpus = watched("GPU-1", "GPU-2")

    gpus.nvml.hanging = {("wait", "GPU-1")}

    def is_said() -> bool:
        gpus.now_s += CALL_DEADLINE_S / 4
        return "XIDs are not seen" in caplog.text

    wait_until(is_said)
    wait_until(lambda: gpus.told == {})
    assert threads("nvml events") == 2, "a third would hang as well"
    gpus.nvml.failing = {("memory", "GPU-2")}
    wait_until(lambda: set(gpus.told) == {"GPU-2"})

    gpus.nvml.hanging, gpus.nvml.failing = set(), set()
    wait_until(lambda: "waited for again" in caplog.text)
    wait_until(lambda: gpus.told == {})
    gpus.settle()
    gpus.nvml.events.append(event(FIRST))
    assert gpus.xids() == {"GPU-1"}


def test_a_call_that_hangs_elsewhere_withdraws_its_gpu(watched: Any) -> None:
    gpus = watched("GPU-1", "GPU-2")

    gpus.elsewhere = {"GPU-2": "a listing hangs"}
    wait_until(lambda: gpus.told == {"GPU-2": "a listing hangs"})

    gpus.elsewhere = {}
    wait_until(lambda: gpus.told == {})
