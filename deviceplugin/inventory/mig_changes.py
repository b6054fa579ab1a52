"""Cuts a GPU into MIG devices, by NVML, as an admin asked for it (`vgpuctl mig apply`).

The mode is set, what is there is ended, and the profiles are made, the largest first, each with one
compute instance of its full size. Where the driver refuses a step, what was there before is made
again as far as it lets us, and its own words are passed on. Nothing here is called by the agent.
"""

import ctypes
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from libvgpu.errors import InventoryError

Say = Callable[[str], None]
_MOST_INSTANCES = 7


def cut(uuid: str, before: Sequence[str], wanted: Sequence[str], say: Say) -> None:
    """Cuts one GPU.

    Args:
        before: the profiles of its MIG devices now, the largest first.
        wanted: profiles, the largest first; none where it is to leave MIG mode.
        say: told each step, as a sentence.

    Raises:
        InventoryError: the driver refuses; what was there before is back, or the sentence says not.
    """
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise InventoryError(f"NVML says {error}") from None
    try:
        _Cutter(pynvml, pynvml.nvmlDeviceGetHandleByUUID(uuid), say).change(before, wanted)
    except pynvml.NVMLError as error:
        raise InventoryError(f"GPU {uuid} cannot be cut: NVML says {error}") from None
    finally:
        pynvml.nvmlShutdown()


class _Cutter:
    """One GPU while it is cut."""

    def __init__(self, nvml: Any, handle: Any, say: Say) -> None:
        self._nvml, self._handle, self._say = nvml, handle, say

    def change(self, before: Sequence[str], wanted: Sequence[str]) -> None:
        if wanted:
            self._set_mode(True)
            ids = self._profile_ids()
            missing = [profile for profile in wanted if profile not in ids]
            if missing:
                raise InventoryError(
                    f"this GPU has no profile {missing[0]}; it has {', '.join(ids) or 'none'}"
                )
        self._end_all()
        try:
            self._make(wanted)
        except self._nvml.NVMLError as error:
            raise InventoryError(f"NVML says {error}; {self._made_again(before)}") from None
        if not wanted:
            self._set_mode(False)

    def _made_again(self, before: Sequence[str]) -> str:
        try:
            self._end_all()
            self._make(before)
        except self._nvml.NVMLError as error:
            return f"the previous MIG devices could not be created again: NVML says {error}"
        return "the previous MIG devices were created again, with new UUIDs"

    def _set_mode(self, wanted: bool) -> None:
        now, _ = self._nvml.nvmlDeviceGetMigMode(self._handle)
        if bool(now) is wanted:
            return
        status = self._nvml.nvmlDeviceSetMigMode(self._handle, int(wanted))
        now, _ = self._nvml.nvmlDeviceGetMigMode(self._handle)
        if bool(now) is not wanted:
            raise InventoryError(
                f"MIG mode waits for a reset of the GPU (NVML's status {status}): end what uses "
                "it, run nvidia-smi --gpu-reset, or reboot"
            )
        self._say(f"MIG mode is {'on' if wanted else 'off'}")

    def _infos(self) -> Iterator[tuple[str, Any]]:
        """Yields the profiles that this GPU has, by name."""
        for number in range(self._nvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
            try:
                info = self._nvml.nvmlDeviceGetGpuInstanceProfileInfo(self._handle, number, 2)
            except (
                self._nvml.NVMLError_NotSupported,
                self._nvml.NVMLError_InvalidArgument,
            ):
                continue
            name = info.name.decode() if isinstance(info.name, bytes) else str(info.name)
            yield name.removeprefix("MIG "), info

    def _profile_ids(self) -> dict[str, int]:
        return {name: int(info.id) for name, info in self._infos()}

    def _end_all(self) -> None:
        for name, info in self._infos():
            for instance in self._listed(
                self._nvml.nvmlDeviceGetGpuInstances,
                self._handle,
                info.id,
                self._nvml.c_nvmlGpuInstance_t,
            ):
                for computing in self._compute_instances(instance):
                    self._nvml.nvmlComputeInstanceDestroy(computing)
                self._nvml.nvmlGpuInstanceDestroy(instance)
                self._say(f"ended a {name}")

    def _compute_instances(self, instance: Any) -> list[Any]:
        return [
            computing
            for _, info in self._compute_infos(instance)
            for computing in self._listed(
                self._nvml.nvmlGpuInstanceGetComputeInstances,
                instance,
                info.id,
                self._nvml.c_nvmlComputeInstance_t,
            )
        ]

    def _compute_infos(self, instance: Any) -> Iterator[tuple[int, Any]]:
        for number in range(self._nvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
            try:
                info = self._nvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(
                    instance, number, self._nvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED, 2
                )
            except (
                self._nvml.NVMLError_NotSupported,
                self._nvml.NVMLError_InvalidArgument,
            ):
                continue
            yield int(info.sliceCount), info

    def _listed(self, ask: Callable[..., Any], of: Any, profile_id: int, kind: Any) -> list[Any]:
        array, count = (kind * _MOST_INSTANCES)(), ctypes.c_uint()
        ask(of, profile_id, array, ctypes.byref(count))
        return list(array[: count.value])

    def _make(self, profiles: Sequence[str]) -> None:
        ids = self._profile_ids()
        for profile in profiles:
            instance = self._nvml.nvmlDeviceCreateGpuInstance(self._handle, ids[profile])
            _, whole = max(self._compute_infos(instance), key=lambda each: each[0])
            self._nvml.nvmlGpuInstanceCreateComputeInstance(instance, whole.id)
            self._say(f"made a {profile}")
