"""How long the driver's time slices are on GPUs with time-slicing replicas (``timeSlice``).

Only the driver's own tool sets them (``nvidia-smi compute-policy --set-timeslice``). A GPU is left
alone until the config names a length, and gets the default back when it names none any more or the
GPU is shared otherwise. `look` is a duty of the loop, and does nothing while all is as wanted.
"""

import logging
import shutil
import subprocess
from collections.abc import Callable, Sequence

from deviceplugin import runtime
from deviceplugin.log import event
from deviceplugin.model.whole_devices import ReplicaKind, TimeSlice
from libvgpu.errors import VgpuError

from .service import SliceService

TOOL = "nvidia-smi"
_TIMEOUT_S = 10.0
#: A tool that failed is asked again so much later.
_RETRY_AFTER_S = 60.0
_NUMBERS = {TimeSlice.DEFAULT: 0, TimeSlice.SHORT: 1, TimeSlice.MEDIUM: 2, TimeSlice.LONG: 3}

Run = Callable[[Sequence[str]], None]


def run_tool(arguments: Sequence[str]) -> None:
    """Runs the driver's tool.

    Raises:
        VgpuError: it is not there, does not end, or fails; with its own words.
    """
    path = shutil.which(TOOL)
    if path is None:
        raise VgpuError(f"{TOOL} is not there; the image's runtime brings it in")
    try:
        done = subprocess.run(
            [path, *arguments], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise VgpuError(f"{TOOL} cannot be run: {error}") from None
    if done.returncode:
        said = " ".join((done.stderr or done.stdout).split())[:200]
        raise VgpuError(f"{TOOL} ends with status {done.returncode}: {said}")


class TimeSlices:
    """Sets time slices; used by one thread."""

    def __init__(
        self,
        service: SliceService,
        run: Run = run_tool,
        clock: Callable[[], float] = runtime.monotonic,
    ) -> None:
        """Has set nothing yet."""
        self._service, self._run, self._clock = service, run, clock
        self._set: dict[str, TimeSlice] = {}
        self._failed: dict[str, tuple[TimeSlice, float]] = {}

    def look(self) -> None:
        """Sets what is not as wanted."""
        wanted = self._wanted()
        given_up = dict.fromkeys(self._set.keys() - wanted.keys(), TimeSlice.DEFAULT)
        for uuid, time_slice in {**wanted, **given_up}.items():
            if self._set.get(uuid) is not time_slice and not self._failed_lately(uuid, time_slice):
                self._try(uuid, time_slice)
        for uuid in given_up:
            if self._set.get(uuid) is TimeSlice.DEFAULT:
                del self._set[uuid]

    def _wanted(self) -> dict[str, TimeSlice]:
        time_slice = self._service.devices.whole.time_slice
        if time_slice is None:
            return {}
        return {
            device.gpu.mig.parent_uuid if device.gpu.mig else device.gpu.uuid: time_slice
            for resource in self._service.layout.resources
            if resource.kind is ReplicaKind.TIME_SLICING
            for device in resource.devices
            if len(device.ids) > 1
        }

    def _failed_lately(self, uuid: str, time_slice: TimeSlice) -> bool:
        then, at_s = self._failed.get(uuid, (None, 0.0))
        return then is time_slice and self._clock() - at_s < _RETRY_AFTER_S

    def _try(self, uuid: str, time_slice: TimeSlice) -> None:
        arguments = ["compute-policy", "-i", uuid, "--set-timeslice", str(_NUMBERS[time_slice])]
        try:
            self._run(arguments)
        except VgpuError as error:
            if self._failed.get(uuid, (None,))[0] is not time_slice:
                event(
                    logging.WARNING,
                    "the driver's time slice cannot be set, will try again",
                    gpu=uuid,
                    wanted=time_slice,
                    reason=error.message,
                )
            self._failed[uuid] = time_slice, self._clock()
            return
        self._failed.pop(uuid, None)
        self._set[uuid] = time_slice
        event(logging.INFO, "the driver's time slice is set", gpu=uuid, length=time_slice)
