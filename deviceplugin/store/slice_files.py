"""What the host keeps for each container, and the answers that bring it there.

Per allocation a private directory with `limits`, `usage`, `ring` (libvgpu.region) and ``meta.json``
(`allocation_dirs`) under the run directory, which may be emptied by a reboot; per build of the
shim a directory under the state directory, which survives. Both halves of a pair get answers made
from the same allocation, so their mounts and their variables are disjoint or equal: the kubelet may
merge them in any order. In family mps what makes a client of MPS is left out where memory comes
first: only core tells whether its GPU is exclusive. How they name the GPUs: `container_answer`.

Synchronised by the agent's lock, apart from `running`, which only reads.
"""

import logging
import os
import re
from collections.abc import Collection, Sequence
from pathlib import Path

from deviceplugin.log import event
from deviceplugin.model.allocations import Allocation
from deviceplugin.model.device_forms import DeviceForms
from deviceplugin.model.gpus import UNKNOWN_INDEX, Gpu
from deviceplugin.model.units import Half
from deviceplugin.policy.devices.exclusive_gpu import is_exclusive
from deviceplugin.policy.devices.known_gpus import devices
from deviceplugin.policy.limits.asked import CONTAINER_PIPE_DIRECTORY, MIB
from libvgpu import allocation_dirs, region
from libvgpu.closed_files import close_directory
from libvgpu.errors import (
    DevicesDifferError,
    LayoutError,
    RegionBusyError,
    RegionError,
    RegionUnknownError,
    VgpuError,
)
from libvgpu.limits import ComputeMode, ContainerLimits, Family

from .container_answer import Answer, Mount, device_parts
from .container_labels import ContainerLabels
from .held_files import SLICE_FILES, HeldFiles
from .mig_nodes import minors_for
from .mps_paths import pipe_directory
from .shim_builds import CONTAINER_DIRECTORY, ShimBuilds, container_shim_path
from .spare_files import SpareFiles

__all__ = ["Answer", "SliceStore", "container_shim_path"]

SHARED_MEMORY = "/dev/shm"  # noqa: S108 - the kernel's tmpfs
PRELOAD_FILE = "/etc/ld.so.preload"
#: What the agent calls its allocations; those of `vgpuctl run` begin with ``run-``.
_AGENTS_ID = re.compile(r"[0-9a-f]{12}")


class SliceStore:
    """The files of all slices of this node.

    Attributes:
        held: those that containers have too, kept open (see there why).
    """

    def __init__(
        self,
        run_dir: Path,
        state_dir: Path,
        forms: DeviceForms | None = None,
        gpus: Sequence[Gpu] = (),
        labels: ContainerLabels | None = None,
    ) -> None:
        """Touches no file yet.

        Args:
            forms: how answers name the GPUs, for as long as the store lives.
            gpus: those of the node now; the indexes and device nodes of answers are from here.
            labels: for the files that containers get.
        """
        self.run_dir = run_dir
        self.state_dir = state_dir
        self.forms = forms or DeviceForms()
        self.held = HeldFiles()
        self.builds = ShimBuilds(state_dir, self.held)
        self._labels = labels or ContainerLabels()
        self.spare = SpareFiles(run_dir, labels=self._labels)
        self.follow_gpus(gpus)
        self._metas: dict[str, allocation_dirs.AllocationMeta] = {}  # what is written, by id

    def follow_gpus(self, gpus: Sequence[Gpu]) -> None:
        """Takes the indexes and device nodes of answers from these GPUs from now on."""
        self._gpus = {gpu.uuid: gpu for gpu in devices(gpus)}
        self.spare.most_devices = min(len(gpus), region.MOST_DEVICES)

    def prepare(self) -> None:
        """Makes the directories and installs the present build of the shim.

        Raises:
            VgpuError: a directory cannot be made or written.
        """
        try:
            for directory in (self.run_dir, self.state_dir):
                directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                if not close_directory(directory):
                    event(
                        logging.WARNING,
                        "a directory of the agent is open to other users, and has files of theirs",
                        directory=directory,
                        hint=f"chmod 0700 {directory}, or name one that nobody else uses",
                    )
            (self.run_dir / "allocations").mkdir(mode=0o700, exist_ok=True)
            self.spare.prepare()
            self.builds.install()
            # Those of an agent that made none, or of a node that did not enforce then, as well.
            self._labels.mark(
                self.run_dir / "allocations", self.run_dir / "spare", self.state_dir / "lib"
            )
        except OSError as error:
            where = error.filename or self.run_dir  # a call on a descriptor names no file
            raise VgpuError(f"{where} cannot be prepared: {error.strerror}") from None

    @property
    def build(self) -> str:
        """The build id of the shim that new containers get."""
        return self.builds.present

    def directory(self, allocation_id: str) -> Path:
        """Returns where the files of an allocation are."""
        return allocation_dirs.allocation_directory(self.run_dir, allocation_id)

    def put(self, allocation: Allocation, limits: ContainerLimits) -> ContainerLimits | None:
        """Makes the files of an allocation where they are missing, and writes ``limits`` into them.

        Files that are whole keep their inode and change in place; a directory of which a part is
        missing or damaged is made again, which a container sees when it starts. Files of a layout
        version that only another version knows stay until then (`put_back`). A `ring` alone is
        added to files of a build that made none: their processes stay, and the next start has it.

        Returns:
            What `limits` said before, None if it was made or said the same already.

        Raises:
            RegionBusyError: the container keeps `limits` from being written now; what it said holds
                until that can be done.
            VgpuError: the files cannot be made.
        """
        directory = self.directory(allocation.allocation_id)
        if not all(os.path.isfile(f"{directory}/{name}") for name in ("usage", "lock")):
            self._make(directory, allocation, limits)
            return None
        try:
            before = self._write(directory, limits)
        except (DevicesDifferError, LayoutError, RegionUnknownError):
            raise
        except RegionError:
            self._make(directory, allocation, limits)
            return None
        try:
            region.make_ring(directory)
        except OSError as error:
            raise VgpuError(f"{directory / 'ring'} cannot be made: {error.strerror}") from None
        self.write_meta(allocation)
        return before if before != limits else None

    def _write(self, directory: Path, limits: ContainerLimits) -> ContainerLimits:
        path = directory / "limits"
        try:
            with self.held.writable(path) as descriptor:
                return region.write_limits(directory, limits, descriptor).limits
        except RegionBusyError:
            # Only a lease for writing keeps others from reading, too.
            before = region.read_limits(directory).limits
            if before != limits:
                raise
            return before

    def write_meta(self, allocation: Allocation, directory: Path | None = None) -> None:
        """Writes whose the allocation is next to its files, if that is new.

        Args:
            directory: where they are made; they are in their place without it.
        """
        is_new = directory is not None  # so it has room for a name, and none in it
        directory = directory or self.directory(allocation.allocation_id)
        old = self._metas.get(allocation.allocation_id)
        is_gone = old is None or not os.path.isfile(f"{directory}/{allocation_dirs.META}")
        if is_gone and not is_new:
            try:
                old = allocation_dirs.read_meta(directory)
            except RegionError:
                old = None
        owner = allocation.owner
        meta = allocation_dirs.AllocationMeta(
            allocation_id=allocation.allocation_id,
            family=allocation.family.name.lower(),
            source="kubelet",
            created_at=old.created_at if old else allocation.changed_at,
            namespace=owner.namespace if owner else "",
            pod=owner.pod if owner else "",
            container=owner.container if owner else "",
            memory_unit_bytes=allocation.memory_unit_bytes,
        )
        if is_new or meta != old:
            try:
                allocation_dirs.write_meta(directory, meta)
            except OSError as error:
                raise VgpuError(f"{directory} cannot be written: {error.strerror}") from None
        self._metas[allocation.allocation_id] = meta

    def put_back(self, allocation: Allocation, limits: ContainerLimits) -> None:
        """Makes sure that every host path of the allocation's answers is there (PreStartContainer).

        Raises:
            VgpuError: something is missing that cannot be made again.
        """
        self._restore_directories()
        if not self.builds.is_whole(allocation.shim_build):
            raise VgpuError(
                f"build {allocation.shim_build} of libvgpu.so, which this container was admitted "
                f"with, is missing in {self.state_dir / 'lib'}",
                hint="delete the pod, so that it is admitted with the present build",
            )
        directory = self.directory(allocation.allocation_id)
        if not self.running(allocation.allocation_id) and not _is_whole(directory):
            # What ran here before has damaged it; who comes now is to have a slice again.
            self._make(directory, allocation, limits)
            return
        self.put(allocation, limits)

    def hold(self, allocation_ids: Collection[str]) -> None:
        """Holds the files of these allocations and of no others.

        What cannot be held now is tried again at the next call.
        """
        directories = {self.directory(each) for each in allocation_ids}
        self.held.keep(directories)
        self.held.hold(each / name for each in directories for name in SLICE_FILES)

    def remove(self, allocation_id: str) -> None:
        """Removes the files of an allocation; running processes keep what they have open."""
        self._metas.pop(allocation_id, None)
        self.held.let_go(self.directory(allocation_id))
        self.spare.discard(self.directory(allocation_id))

    def sweep(self, known: set[str]) -> list[str]:
        """Removes directories of the kubelet's allocations that are not ``known``; returns them.

        Also those that an agent which was killed left half made or half removed; never those of
        processes that live.
        """
        gone = []
        for directory in sorted((self.run_dir / "allocations").iterdir()):
            try:
                ours = allocation_dirs.read_meta(directory).source == "kubelet"
            except RegionError:
                ours = _AGENTS_ID.fullmatch(directory.name) is not None
            if ours and directory.name not in known and not self.running(directory.name):
                self.remove(directory.name)
                gone.append(directory.name)
        return gone

    def metas(self) -> dict[str, allocation_dirs.AllocationMeta]:
        """Returns what the run directory says of the kubelet's allocations, by id."""
        found = allocation_dirs.list_allocations(self.run_dir)
        return {a.directory.name: a.meta for a in found if a.meta.source == "kubelet"}

    def unaccounted(self, allocation_id: str) -> dict[str, int]:
        """Returns what the files of an allocation charge outside its ledger, in bytes by GPU."""
        try:
            limits = region.read_limits(self.directory(allocation_id)).limits
        except RegionError:
            return {}
        return {d.uuid: d.unaccounted_bytes for d in limits.devices if d.unaccounted_bytes}

    def running(self, allocation_id: str) -> bool:
        """Returns whether processes of an allocation are alive."""
        try:
            usage = region.read_usage(self.directory(allocation_id))
        except RegionUnknownError:
            return True  # whoever has a lease, say
        except RegionError:
            return False
        return any(process.alive for process in usage.processes)

    def compute(self, allocation_id: str) -> ComputeMode | None:
        """Returns how compute is held by an allocation's files, None where they do not say."""
        try:
            return region.read_limits(self.directory(allocation_id)).limits.devices[0].compute_mode
        except (RegionError, IndexError):
            return None

    def answer(self, allocation: Allocation, half: Half | None, limits: ContainerLimits) -> Answer:
        """Returns what the container is started with for ``half``, None for a replica.

        Raises:
            InventoryError: the GPU is to be named by an index that nobody knows.
        """
        directory = self.directory(allocation.allocation_id)
        library = self.builds.directory(allocation.shim_build)
        mounts = [
            Mount(f"{CONTAINER_DIRECTORY}/limits", f"{directory}/limits", True),
            Mount(f"{CONTAINER_DIRECTORY}/usage", f"{directory}/usage", False),
            *(
                Mount(f"{CONTAINER_DIRECTORY}/{ring.name}", str(ring), False)
                for ring in (region.ring_path(directory, n) for n in range(len(limits.devices)))
            ),
            Mount(container_shim_path(allocation.shim_build), f"{library}/libvgpu.so", True),
            Mount(PRELOAD_FILE, f"{library}/ld.so.preload", True),
        ]
        envs: dict[str, str] = {}
        if _is_told_of_mps(allocation):
            pipe = pipe_directory(self.run_dir, allocation.uuid)
            mounts.append(Mount(CONTAINER_PIPE_DIRECTORY, str(pipe), False))
            # Where a client and the server share memory.
            mounts.append(Mount(SHARED_MEMORY, SHARED_MEMORY, False))
            envs["CUDA_MPS_PIPE_DIRECTORY"] = CONTAINER_PIPE_DIRECTORY
            if allocation.family is Family.MPS:
                envs |= _held_by_mps(allocation, half, limits)
        gpus = [self._gpus.get(u, Gpu(UNKNOWN_INDEX, u, "", 0)) for u in allocation.uuids]
        parts = device_parts(
            gpus,
            self.forms,
            allocation.allocation_id,
            os.path.exists,
            minors_for(gpus, self.forms),
        )
        return Answer(envs, tuple(mounts)).joined(parts)

    def _restore_directories(self) -> None:
        """Makes what the run directory must have again, if it was emptied under us."""
        if not os.path.isdir(f"{self.run_dir}/allocations") or not self.spare.is_there():
            self.prepare()

    def _make(self, directory: Path, allocation: Allocation, limits: ContainerLimits) -> None:
        self._restore_directories()
        self.spare.discard(directory)
        made = self.spare.make(limits)
        try:
            self.write_meta(allocation, made)
            os.rename(made, directory)  # whole or not at all, whenever we are killed
        except (OSError, VgpuError) as error:
            self.spare.discard(made)
            if isinstance(error, VgpuError):
                raise
            raise VgpuError(f"{directory} cannot be made: {error.strerror}") from None
        self.held.hold(directory / name for name in SLICE_FILES)


def _is_whole(directory: Path) -> bool:
    """Returns whether a container that starts finds its `usage` as it must be.

    Raises:
        RegionUnknownError: nobody can tell now.
    """
    try:
        region.read_usage(directory)
    except RegionUnknownError:
        raise
    except RegionError:
        return False
    return True


def _is_told_of_mps(allocation: Allocation) -> bool:
    """Returns whether an answer makes a client of MPS of its container.

    In family mps memory alone does not say yet whether it will be one or has an exclusive GPU.
    """
    is_known = bool(allocation.core or allocation.replicas) or allocation.family is not Family.MPS
    return allocation.served_by_mps and is_known and not is_exclusive(allocation)


def _held_by_mps(
    allocation: Allocation, half: Half | None, limits: ContainerLimits
) -> dict[str, str]:
    """Returns the variables by which MPS holds a container of family mps."""
    (device,) = limits.devices
    envs = {}
    if half is not Half.MEMORY:
        envs["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = str(device.mps_thread_percentage)
    if allocation.memory or allocation.replicas:
        # The container sees one GPU, so it is number 0 there.
        envs["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = f"0={device.mps_pinned_bytes // MIB}M"
    return envs
