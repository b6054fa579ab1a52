"""How containers of this node get their GPUs: the form of answer, chosen or given, and its spec.

The agent's loop calls `look`, the kubelet's calls ask `check` before a container starts; what they
share is in `SpecKeeper`, which has the lock.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from deviceplugin.log import event
from deviceplugin.model.device_forms import DeviceForms, ListStrategy
from deviceplugin.model.gpus import Gpu
from deviceplugin.pages.state import ReportedInjection
from libvgpu.errors import AllocationRefused, VgpuError

from .node_driver import NodeDriver
from .spec_keeper import SpecKeeper
from .strategy import CDI_LISTS, Choice, RuntimeFacts, cannot_inject, choose

#: Whether another form would be chosen now is looked at each so many turns: it reads a few files.
_FACTS_EVERY_TURNS = 12


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
        self._read_facts = facts
        self._spec = SpecKeeper(wanted, driver, gpus, machine)
        self._is_auto = ListStrategy.AUTO in wanted.lists
        needs_facts = self._is_auto or CDI_LISTS & set(wanted.lists)
        self._facts = facts() if needs_facts else RuntimeFacts()
        self.forms, self._choice = wanted, Choice(wanted.lists, "the config says so")
        if self._is_auto:
            self._choice = choose(self._facts, wanted.cdi_spec_dir, self._spec.obstacle())
            self.forms = replace(wanted, lists=self._choice.lists)
            event(
                logging.WARNING if self._choice.needs_class else logging.INFO,
                "device list strategy chosen",
                strategy="+".join(self.forms.lists),
                because=self._choice.because,
            )
        self._uses_cdi = bool(CDI_LISTS & set(self.forms.lists))
        self._turns = 0
        self._outdated = ""

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
            self._spec.look(gpus)

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
        for uuid in uuids:
            try:
                self._spec.check(uuid)
            except VgpuError:
                if set(self.forms.lists) <= CDI_LISTS:
                    raise
                # Another form may bring it, so nobody knows that it would be missing.

    def shown(self) -> ReportedInjection:
        """Returns what ``/v1/state`` says of it."""
        dropped = cannot_inject(self.forms.lists, self._facts)
        return ReportedInjection(
            lists=tuple(map(str, self.forms.lists)),
            because=self._choice.because,
            needs_class=self._choice.needs_class,
            spec=self._spec.path if self._uses_cdi else "",
            problems=(*self._spec.problems, *filter(None, [self._outdated, dropped])),
        )

    def _look_at_choice(self) -> None:
        self._turns += 1
        if self._turns % _FACTS_EVERY_TURNS:
            return
        now = choose(self._read_facts(), self.forms.cdi_spec_dir, self._spec.obstacle())
        outdated = ""
        if now.lists != self.forms.lists:
            outdated = (
                f"{' and '.join(now.lists)} would be chosen now, since {now.because}; "
                "restart the agent for it"
            )
        if outdated and outdated != self._outdated:
            event(logging.WARNING, "the node's container runtime has changed", reason=outdated)
        self._outdated = outdated
