"""Keeps the labels of the node as they should be; a duty of the agent's loop, and used by it alone.

They are written when they have changed and when the interval of the config is over, which repairs
what somebody else took away. A fault is logged once, and tried again; it never reaches the agent.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from deviceplugin import runtime
from deviceplugin.log import event
from deviceplugin.model.gpus import Gpu
from deviceplugin.model.label_settings import LabelSettings, LabelTarget
from libvgpu.errors import VgpuError

from .machine import read_machine
from .mig_labels import single_problem
from .node_labels import node_labels
from .offered import Machine, Offered

#: So often at most, since what is free changes with each container; and after a fault.
LEAST_BETWEEN_S = 10.0


class LabelOutput(Protocol):
    """Where labels go; every method may raise VgpuError."""

    def write(self, labels: Mapping[str, str]) -> None:
        """Makes them the labels of the node."""

    def end(self, keep: bool) -> None:
        """Ends with the agent, which may want the labels kept."""

    def remove(self) -> None:
        """Takes the labels away and ends: they go elsewhere now."""


class LabelPublisher:
    """Writes the labels of the node."""

    def __init__(
        self,
        settings: Callable[[], LabelSettings],
        look_at: Callable[[LabelSettings], tuple[Sequence[Gpu], Offered]],
        output_of: Callable[[LabelSettings], LabelOutput | None],
        machine_of: Callable[[str], Machine] = read_machine,
        epoch_s: Callable[[], float] = runtime.epoch,
    ) -> None:
        """Writes nothing yet.

        Args:
            settings: what the config in force says.
            look_at: returns the GPUs of the node and what is offered of them.
            output_of: returns where labels go; None for nowhere.
            machine_of: returns what is known of the machine, by the path of its type.
            epoch_s: seconds since the epoch.
        """
        self._settings, self._look_at, self._output_of = settings, look_at, output_of
        self._machine_of, self._epoch_s = machine_of, epoch_s
        self._place: tuple[LabelTarget, str] | None = None
        self._output: LabelOutput | None = None
        self._machine: tuple[str, Machine] | None = None
        self._since_epoch_s = int(epoch_s())
        self._written: Mapping[str, str] | None = None
        self._written_at_s = 0.0
        self._retry_at_s = float("-inf")
        self._said = ""
        self._said_of_mig: str | None = None

    def look(self, now_s: float) -> None:
        """Writes the labels where that is due.

        Args:
            now_s: of a monotonic clock.
        """
        settings = self._settings()
        try:
            self._follow(settings)
            if self._output is not None and now_s >= self._retry_at_s:
                self._write(self._output, settings, now_s)
                self._said = ""
        except VgpuError as error:
            self._retry_at_s = now_s + LEAST_BETWEEN_S
            if error.message != self._said:
                level = logging.WARNING if settings.is_named else logging.INFO
                event(level, "labels of the node are not written", reason=error.message)
            self._said = error.message

    def stop(self) -> None:
        """Ends: a feature file goes with the agent, unless it was to be written once."""
        try:
            if self._output is not None:
                self._output.end(keep=self._settings().oneshot)
        except VgpuError as error:
            event(logging.WARNING, error.message)
        self._output = None

    def _follow(self, settings: LabelSettings) -> None:
        """Goes where the config says labels go now."""
        place = settings.target, settings.output_file
        if place == self._place:
            return
        before, self._output, self._written = self._output, None, None
        self._place, self._retry_at_s = place, float("-inf")
        try:
            if before is not None:
                before.remove()
        finally:
            self._output = self._output_of(settings)
            self._since_epoch_s = int(self._epoch_s())

    def _write(self, output: LabelOutput, settings: LabelSettings, now_s: float) -> None:
        is_first = self._written is None
        age_s = now_s - self._written_at_s
        if not is_first and (settings.oneshot or age_s < min(LEAST_BETWEEN_S, settings.interval_s)):
            return
        labels = self._labels(settings)
        if not is_first and labels == self._written and age_s < settings.interval_s:
            return
        output.write(labels)
        if is_first:
            event(
                logging.INFO,
                "labels of the node written",
                to=settings.target,
                labels=len(labels),
            )
        self._written, self._written_at_s = labels, now_s

    def _labels(self, settings: LabelSettings) -> Mapping[str, str]:
        gpus, offered = self._look_at(settings)
        if self._machine is None or self._machine[0] != settings.machine_type_file:
            path = settings.machine_type_file
            self._machine = path, self._machine_of(path)
        problem = single_problem(gpus, offered) if offered.mig_strategy == "single" else None
        if problem is not None and problem != self._said_of_mig:
            event(
                logging.WARNING,
                "MIG strategy single cannot be served; the product is labelled MIG-INVALID",
                reason=problem,
            )
        self._said_of_mig = problem
        since = self._since_epoch_s if settings.timestamp else None
        return node_labels(gpus, offered, self._machine[1], since)
