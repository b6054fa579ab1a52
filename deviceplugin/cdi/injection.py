"""How containers of this node get their GPUs: the form chosen, and the CDI spec kept for it.

The agent's loop calls `look`, which writes the spec where driver, GPUs or MIG devices have changed;
the kubelet's calls ask `check` before a container starts. A lock is held while either looks.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from deviceplugin.config.device_forms import DeviceForms, IdStrategy, ListStrategy
from deviceplugin.log import event
from deviceplugin.model.gpus import Gpu
from libvgpu.errors import AllocationRefused, VgpuError

from .node_driver import NodeDriver
from .spec import Built, build_spec, without_devices
from .spec_files import SpecDirectory, SpecFile
from .strategy import Choice, RuntimeFacts, cannot_inject, choose

_CDI_LISTS = frozenset({ListStrategy.CDI_CRI, ListStrategy.CDI_ANNOTATIONS})
#: Whether another form would be chosen now is looked at each so many turns: it reads a few files.
_FACTS_EVERY_TURNS = 12
_NO_DRIVER = (
    "no CDI spec can be written, since libcuda.so.1 is not found on this node; name the driver's "
    "root in flags.nvidiaDriverRoot, and where the agent sees it in "
    "flags.plugin.containerDriverRoot"
)


class NodeInjection:
    """The forms in force, and the spec that they need.

    Attributes:
        forms: the config's, with ``auto`` replaced by what was chosen; for as long as it lives.
    """

    def __init__(
        self,
        wanted: DeviceForms,
        driver: NodeDriver,
        gpus: Sequence[Gpu],
        facts: Callable[[], RuntimeFacts],
        machine: str,
    ) -> None:
        """Chooses and says so; writes nothing yet.

        Args:
            wanted: what the config says.
            gpus: those of the node.
            facts: returns what is known of its container runtime.
            machine: as ``uname -m`` says.
        """
        self._driver, self._gpus, self._read_facts = driver, gpus, facts
        self._machine = machine
        self._is_auto = ListStrategy.AUTO in wanted.lists
        self._asks_facts = self._is_auto or bool(_CDI_LISTS & set(wanted.lists))
        self._facts = facts() if self._asks_facts else RuntimeFacts()
        self._directory = SpecDirectory(driver.node.tree, wanted.cdi_spec_dir, wanted.cdi_kind)
        self.forms = wanted
        self._choice = Choice(wanted.lists, "the config says so")
        if self._is_auto:
            self._choice = choose(self._facts, wanted.cdi_spec_dir, self._obstacle())
            self.forms = replace(wanted, lists=self._choice.lists)
        self._uses_cdi = bool(_CDI_LISTS & set(self.forms.lists))
        self._lock = threading.Lock()
        self._turns = 0
        self._said: tuple[str, ...] = ()
        self._problems: tuple[str, ...] = ()
        self._outdated = self._unwritten = ""
        if self._is_auto:
            event(
                logging.WARNING if self._choice.needs_class else logging.INFO,
                "device list strategy chosen",
                strategy="+".join(self.forms.lists),
                because=self._choice.because,
            )

    def look(self, gpus: Sequence[Gpu]) -> None:
        """Brings the spec in line with driver and GPUs, and says what has changed.

        Args:
            gpus: those of the node now.

        Raises:
            VgpuError: the spec cannot be written.
        """
        if self._is_auto:
            self._look_at_choice()
        if self._uses_cdi:
            with self._lock:
                self._gpus = gpus
                self._renew()

    def check(self, uuids: Sequence[str]) -> None:
        """Refuses a container that would start, or fail, without its GPUs as far as that shows.

        Raises:
            VgpuError: in one sentence, why.
        """
        if not self._uses_cdi:
            return
        reason = cannot_inject(self.forms.lists, self._facts)
        if reason:
            raise AllocationRefused(reason)
        with self._lock:
            for uuid in uuids:
                try:
                    self._check_device(uuid)
                except VgpuError:
                    if set(self.forms.lists) <= _CDI_LISTS:
                        raise
                    # Another form may bring it, so nobody knows that it would be missing.

    def shown(self) -> dict[str, Any]:
        """Returns what ``/v1/state`` says of it."""
        dropped = cannot_inject(self.forms.lists, self._facts)
        problems = [*self._problems, self._unwritten, self._outdated, dropped]
        return {
            "lists": list(map(str, self.forms.lists)),
            "because": self._choice.because,
            "needs_class": list(self._choice.needs_class),
            "spec": self._directory.path if self._uses_cdi else "",
            "problems": [problem for problem in problems if problem],
        }

    def _look_at_choice(self) -> None:
        self._turns += 1
        if self._turns % _FACTS_EVERY_TURNS:
            return
        now = choose(self._read_facts(), self.forms.cdi_spec_dir, self._obstacle())
        outdated = ""
        if now.lists != self.forms.lists:
            outdated = (
                f"{' and '.join(now.lists)} would be chosen now, since {now.because}; "
                "restart the agent for it"
            )
        if outdated and outdated != self._outdated:
            event(logging.WARNING, "the node's container runtime has changed", reason=outdated)
        self._outdated = outdated

    def _obstacle(self) -> str:
        """Returns why there would be no CDI spec of this node's GPUs, empty where there would."""
        if not self._driver.node.is_seen:
            return "the agent does not see the node's root (it needs hostPID and privileged)"
        built = self._built()
        if built.content is not None or self._directory.others():
            return ""
        return "; ".join(built.problems) or "there is no GPU"

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
                file=self._directory.path,
                devices=len(mine.content["devices"]),
                driver=(driver.version if driver else "") or "unknown",
                libraries="by NVIDIA's hook" if self._driver.hook() else "by their names",
            )

    def _built(self) -> Built:
        driver = self._driver.files()
        if driver is None:
            return Built(None, (_NO_DRIVER,))
        gpus = self._gpus
        built = build_spec(
            self.forms.cdi_kind,
            gpus,
            driver,
            self._driver.devices(),
            self._machine,
            self._driver.hook(),
            self._driver.simulated,
        )
        running = next((gpu.driver for gpu in gpus if gpu.driver), "")
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

    def _check_device(self, uuid: str) -> None:
        name = self._name(uuid)
        qualified = f"{self.forms.cdi_kind}={name}"
        spec = self._directory.having(name)
        if spec is None:
            self._renew()  # put back what somebody removed
            spec = self._directory.having(name)
        if spec is None:
            why = "; ".join(self._problems) or "it may have left the node"
            raise AllocationRefused(
                f"no CDI spec in {self.forms.cdi_spec_dir} has {qualified}, so the container "
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

    def _name(self, uuid: str) -> str:
        if self.forms.ids is IdStrategy.UUID:
            return uuid
        for gpu in self._gpus:
            if gpu.uuid == uuid:
                return str(gpu.index)
            for part in gpu.mig_devices:
                if part.uuid == uuid and part.mig is not None:
                    return f"{gpu.index}:{part.mig.number}"
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
