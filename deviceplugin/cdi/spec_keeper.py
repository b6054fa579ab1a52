"""The CDI spec of this node, kept in line with driver and GPUs, and held against the node.

The agent's loop renews it; the kubelet's calls check that a container will find its GPU in it. A
lock is held while either looks.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace

from deviceplugin import runtime
from deviceplugin.log import event
from deviceplugin.model.device_forms import DeviceForms, IdStrategy
from deviceplugin.model.gpus import Gpu
from libvgpu.errors import AllocationRefused, VgpuError

from .node_driver import NodeDriver
from .spec import Built, build_spec, without_devices
from .spec_files import SpecDirectory, SpecFile

_NO_DRIVER = (
    "no CDI spec can be written, since libcuda.so.1 is not found on this node; name the driver's "
    "root in flags.nvidiaDriverRoot, and where the agent sees it in "
    "flags.plugin.containerDriverRoot"
)


class SpecKeeper:
    """Writes the spec and looks into those that are there."""

    def __init__(
        self, forms: DeviceForms, driver: NodeDriver, gpus: Sequence[Gpu], machine: str
    ) -> None:
        """Reads and writes nothing yet.

        Args:
            forms: which kind, where, and how devices are named.
            gpus: those of the node.
            machine: as ``uname -m`` says.
        """
        self._forms, self._driver, self._gpus, self._machine = forms, driver, gpus, machine
        self._directory = SpecDirectory(driver.node.tree, forms.cdi_spec_dir, forms.cdi_kind)
        self._lock = runtime.lock()
        self._said: tuple[str, ...] = ()
        self._problems: tuple[str, ...] = ()
        self._unwritten = ""

    @property
    def path(self) -> str:
        """Where the spec is on the node."""
        return self._directory.path

    @property
    def problems(self) -> list[str]:
        """What is wrong with it, a sentence each."""
        return [*self._problems, *filter(None, [self._unwritten])]

    def obstacle(self) -> str:
        """Returns why there would be no spec of this node's GPUs, empty where there would."""
        if not self._driver.node.is_seen:
            return "the agent does not see the node's root (it needs hostPID and privileged)"
        built = self._built()
        if built.content is not None or self._directory.others():
            return ""
        return "; ".join(built.problems) or "there is no GPU"

    def look(self, gpus: Sequence[Gpu]) -> None:
        """Writes the spec where driver or GPUs have changed, and says what is new.

        Raises:
            VgpuError: it cannot be written.
        """
        with self._lock:
            self._gpus = gpus
            self._renew()

    def check(self, uuid: str) -> None:
        """Makes sure that the container runtime finds a GPU, and all that it is made of.

        Raises:
            VgpuError: in one sentence, why it would not.
        """
        with self._lock:
            self._check(uuid)

    def _check(self, uuid: str) -> None:
        name = self._name(uuid)
        qualified = f"{self._forms.cdi_kind}={name}"
        spec = self._directory.having(name)
        if spec is None:
            self._renew()  # put back what somebody removed
            spec = self._directory.having(name)
        if spec is None:
            why = "; ".join(self._problems) or "it may have left the node"
            raise AllocationRefused(
                f"no CDI spec in {self._forms.cdi_spec_dir} has {qualified}, so the container "
                f"would not get its GPU: {why}"
            )
        missing = self._missing(spec, name)
        if missing and spec.path == self._directory.path:
            self._renew()  # the driver may have been replaced a moment ago
            spec = self._directory.having(name) or spec
            missing = self._missing(spec, name)
        if missing:
            raise VgpuError(
                f"{qualified} of {spec.path} needs {missing}, which is not on this node, so the "
                "container would start without its GPU",
                hint="load the driver (nvidia-modprobe -u -c 0 makes device nodes)"
                if missing.startswith("/dev/")
                else "write that spec again (nvidia-ctk cdi generate), or remove it: the agent "
                "then writes its own",
            )

    def _renew(self) -> None:
        built = self._built()
        others = self._directory.others()
        mine = without_devices(built, frozenset(n for other in others for n in other.devices))
        self._say(built, others)
        if built.content is None:
            return  # what stands there may still serve containers; there is nothing better
        try:
            is_new = self._directory.write(mine.content)
        except VgpuError as error:
            self._unwritten = error.message
            raise
        self._unwritten = ""
        if is_new and mine.content is not None:
            driver = self._driver.files()
            event(
                logging.INFO,
                "CDI spec written",
                file=self.path,
                devices=len(mine.content["devices"]),
                driver=(driver.version if driver else "") or "unknown",
                libraries="by NVIDIA's hook" if self._driver.hook() else "by their names",
            )

    def _built(self) -> Built:
        driver = self._driver.files()
        if driver is None:
            return Built(None, (_NO_DRIVER,))
        built = build_spec(
            self._forms.cdi_kind,
            self._gpus,
            driver,
            self._driver.devices(),
            self._machine,
            self._driver.hook(),
            self._driver.simulated,
        )
        running = next((gpu.driver for gpu in self._gpus if gpu.driver), "")
        if driver.version and running and driver.version != running:
            stale = (
                f"the libraries on this node are of driver {driver.version} while {running} runs, "
                "so CUDA fails in containers; load the new driver, or reboot the node"
            )
            return replace(built, problems=(*built.problems, stale))
        return built

    def _say(self, built: Built, others: Sequence[SpecFile]) -> None:
        theirs = sorted(o.path for o in others if built.names & o.devices.keys())
        said = (*built.problems, *(f"{path} has these devices already" for path in theirs))
        for text in said:
            if text in self._said:
                continue
            if text in built.problems:
                event(logging.ERROR, "CDI spec incomplete", reason=text)
            else:
                event(logging.INFO, "CDI spec of somebody else is used", reason=text)
        self._said, self._problems = said, built.problems

    def _name(self, uuid: str) -> str:
        if self._forms.ids is IdStrategy.UUID:
            return uuid
        for gpu in self._gpus:
            if gpu.uuid == uuid:
                return str(gpu.runtime_index)
            for part in gpu.mig_devices:
                if part.uuid == uuid and part.mig is not None:
                    return f"{gpu.runtime_index}:{part.mig.number}"
        return uuid

    def _missing(self, spec: SpecFile, name: str) -> str:
        """Returns the first path that a device's edits need and the node lacks."""
        node = self._driver.node
        if not node.is_seen:
            return ""
        for edits in (spec.devices[name], spec.common):
            for kind, keys in (("deviceNodes", ("hostPath", "path")), ("mounts", ("hostPath",))):
                for each in edits.get(kind) or ():
                    path = next((str(each[key]) for key in keys if each.get(key)), "")
                    if path and not node.tree.exists(path):
                        return path
        return ""
