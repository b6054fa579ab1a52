"""What an agent does, in short, with each of its I/O calls failing once.

A scenario is prepared, then lived with the calls counted. What may come of a failure: the pod that
is admitted just now is refused, a container starts later, or the agent ends and is started again,
and then a message says which file or peer it was. Whatever was given stays, nothing is given twice,
and soon the node is as if nothing had failed.
"""

import logging
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from deviceplugin.log import LOGGER, KeyValueFormatter
from deviceplugin.testing import AdmissionFailed
from libvgpu import region

from .histories import CORE, MEMORY, Asked, History, Life
from .lives import CONFIG, GPUS
from .node import WorldNode
from .one_failure import Call, OneFailure

_FOLDER = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
PAIR: Asked = {CORE: 30, MEMORY: 4}
TWO_GPUS: Asked = {CORE: 200}
TUNED = CONFIG + "limits: [{match: {container: '*'}, core: 10}]\n"
#: Longer than GPUs are listed and asked for their health.
_SETTLES_S = 8.0


class Tried(History):
    """A life of one scenario, with what was said in it."""

    def __init__(self, node: WorldNode, failure: OneFailure) -> None:
        super().__init__(node, 0, Life())
        self.world, self.failure = node, failure
        self.said: list[str] = []  # in the agent's log
        self.denied: list[str] = []  # to the kubelet
        self.files: dict[Path, int] = {}  # inodes of those that containers have
        self.core: int | None = None  # what a rule makes of any container's

    def try_to_admit(self, asked: Asked) -> None:
        """Admits a pod and starts it, as a kubelet and who owns the pod would go on trying."""
        before = len(self.pods)
        self.may_be_cut_off = True  # a refusal is looked at in `check_told`
        for _ in range(2):
            try:
                self.admit([], [asked])
            finally:
                self.may_be_cut_off = False
            if len(self.pods) > before:
                break
            self.node.pass_time(1.0)
        assert len(self.pods) > before, f"{asked} is refused again: {self.denied}"
        self.try_to_start()

    def admit(self, init: list[Asked], containers: list[Asked]) -> None:
        kubelet = self.world.kubelet
        admit = kubelet.admit

        def noting(manifest: object) -> object:
            try:
                return admit(manifest)  # type: ignore[arg-type]
            except AdmissionFailed as error:
                self.denied.append(str(error))
                raise

        kubelet.admit = noting  # type: ignore[method-assign, assignment]
        try:
            super().admit(init, containers)
        finally:
            kubelet.admit = admit  # type: ignore[method-assign]

    def try_to_start(self) -> None:
        """Starts all containers; one that is refused is tried again."""
        for _ in range(2):
            before = len(self.denied)
            for pod in self.pods:
                self.start(pod)
            if len(self.denied) == before:
                self.files = self._inodes()
                return
            self.node.pass_time(5.0)
        raise AssertionError(f"a container is refused again: {self.denied}")

    def check_files(self) -> None:
        """A container that started has the files that it was given."""
        for path, inode in self._inodes().items():
            assert self.files.get(path, inode) == inode, f"{path} is another file than before"

    def _inodes(self) -> dict[Path, int]:
        names = ("limits", "usage", "ring")
        return {
            each: each.stat().st_ino
            for pod in self.pods
            for container in pod.containers
            for answer in container.answers.values()
            for each in (Path(m.host_path) for m in answer.mounts)
            if each.name in names
        }

    def check_no_start(self, said: str, asked: object) -> None:
        self.denied.append(said)

    def check_limits(self, asked: object, directory: Path) -> None:
        if self.core is None:
            super().check_limits(asked, directory)  # type: ignore[arg-type]

    def check_tuned(self) -> None:
        """The rule holds for each slice."""

        def hold() -> bool:
            found = list((self.node.run_dir / "allocations").iterdir())
            cores = [d.core_percent for f in found for d in region.read_limits(f).limits.devices]
            return bool(cores) and all(each == self.core for each in cores)

        self.node.wait_until(hold, "the new rule holds")


@dataclass(frozen=True)
class Scenario:
    """What is tried."""

    prepare: Callable[[Tried], None] = lambda tried: None
    live: Callable[[Tried], None] = lambda tried: None
    is_first_start: bool = False


def _two_run(tried: Tried) -> None:
    tried.try_to_admit(PAIR)
    tried.try_to_admit(TWO_GPUS)
    tried.node.pass_time(_SETTLES_S)


def _stopped(tried: Tried) -> None:
    _two_run(tried)
    tried.world.stop_agent()


def _started(tried: Tried) -> None:
    if tried.made:
        tried.world.start_agent()
    tried.node.wait_registered([CORE, MEMORY])
    tried.node.pass_time(_SETTLES_S)


def _tune(tried: Tried) -> None:
    tried.core = 10
    tried.node.config.write_text(TUNED)
    tried.check_tuned()


def _release(tried: Tried) -> None:
    tried.end_pods()
    tried.wait_all_freed()


SCENARIOS = {
    "start on nothing": Scenario(live=_started, is_first_start=True),
    "start over slices": Scenario(_stopped, _started),
    "Allocate of a pair": Scenario(live=lambda tried: tried.try_to_admit(PAIR)),
    "Allocate of two GPUs": Scenario(live=lambda tried: tried.try_to_admit(TWO_GPUS)),
    "an edit of the config": Scenario(_two_run, _tune),
    "release": Scenario(_two_run, _release),
}


@dataclass
class Lived:
    """What came of it."""

    calls: list[Call] = field(default_factory=list)
    failed: Call | None = None
    said: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    def check_told(self, error: int) -> None:
        """Whatever was said of the failure names what failed; a refusal is always explained."""
        if self.failed is None:
            return
        told = [*self.said, *self.refused]
        for each in told:
            is_it = os.strerror(error) in each or "trace=" in each
            assert not is_it or self.failed.is_named_by(each), f"{self.failed} is not in: {each}"
            assert "trace=" not in each, f"nobody foresaw that {self.failed} fails: {each}"
        named = any(self.failed.is_named_by(each) for each in told)
        assert named or not self.refused, f"{self.failed} is named by none of {told}"


class _Notes(logging.Handler):
    """Warnings, and exceptions, as the agent's log has them."""

    def __init__(self, said: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._said = said
        self.setFormatter(KeyValueFormatter())

    def emit(self, record: logging.LogRecord) -> None:
        self._said.append(self.format(record))


@contextmanager
def _log_in(said: list[str]) -> Iterator[None]:
    notes = _Notes(said)
    LOGGER.addHandler(notes)
    try:
        yield
    finally:
        LOGGER.removeHandler(notes)


def live(scenario: Scenario, fail_at: Call | None = None, error: int = 0) -> Lived:
    """Lives a scenario in which one call fails, or none.

    Raises:
        AssertionError: a promise was broken.
    """
    with (
        tempfile.TemporaryDirectory(prefix="vgpu-", dir=_FOLDER) as base,
        pytest.MonkeyPatch.context() as patch,
    ):
        node = WorldNode(Path(base), 1, CONFIG, GPUS, patch)
        node.restarts = True
        failure = node.count_calls(patch)
        tried = Tried(node, failure)
        try:
            with _log_in(tried.said):
                if scenario.is_first_start:
                    failure.arm(fail_at, error)
                node.wait_registered([CORE, MEMORY])
                scenario.prepare(tried)
                if not scenario.is_first_start:
                    tried.said.clear()
                    failure.arm(fail_at, error)
                scenario.live(tried)
                tried.node.pass_time(_SETTLES_S)
                failure.disarm()
                tried.denied += node.ended_by
                _check_promises(tried)
        finally:
            failure.disarm()
            node.close()
    return Lived(failure.calls, failure.failed, tried.said, tried.denied)


def _check_promises(tried: Tried) -> None:
    """All that was given holds, another pod fits in, and all of it comes back."""
    node = tried.world
    tried.check()
    tried.check_files()
    tried.try_to_start()
    if tried.core is not None:
        tried.check_tuned()
    node.wait_until(node.is_healthy, "the agent says that it is healthy")
    if len(tried.pods) < 2:
        tried.try_to_admit({CORE: 20, MEMORY: 2})
        tried.check()
    _release(tried)
    whole = {CORE: 100 * len(GPUS), MEMORY: 16 * len(GPUS)}
    node.wait_until(lambda: node.kubelet.allocatable() == whole, f"{whole} is offered")
