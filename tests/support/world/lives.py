"""Short lives in worlds, each of one seed and of one kind.

What the kinds hold in common is said by `histories`. The last kind has faults of all sorts come
and go; some minutes after they are over the node has to be as if there had been none.
"""

import gc
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deviceplugin.model.allocations import Allocation, AllocationBook
from deviceplugin.model.units import Half
from deviceplugin.policy.pairing import pairing
from libvgpu import artifacts
from libvgpu.limits import Family
from support.node.in_process import MPS_GPU, SPARE_GPU, VGPU_GPU
from support.world.histories import History, Life
from support.world.kill_histories import UnderKills
from support.world.sharing_histories import SharingHistory, WantedSharing

from ..seeds import how_to_repeat, seeds
from ..waiting import PATIENCE_S
from .fault_histories import UnderFaults
from .node import WorldNode

GPUS = (MPS_GPU, VGPU_GPU, SPARE_GPU)
CONFIG = "version: v1\nsharing: {fractional: [{family: vgpu, memoryUnit: 1Gi}]}\n"
SHARING = WantedSharing(("vgpu", "vgpu", "vgpu"), {"vgpu": 1, "mps": 1}).text()
#: Without halves whose container nobody can know; then a pair that fits is never refused.
PAIRS = {"pair": 40, "several": 8, "init": 10, "too much": 5, "end": 35, "start": 25,
         "restart agent": 1, "restart kubelet": 1}  # fmt: skip
EDITS = {"pair": 40, "end": 35, "start": 15, "edit": 8, "restart agent": 1, "restart kubelet": 1}
FORGETS = {"pair": 50, "several": 8, "end": 10, "start": 25}
KILLS = {"pair": 40, "several": 8, "init": 10, "end": 35, "start": 40}

FAULTS = {"pair": 45, "several": 6, "init": 4, "end": 30, "start": 30, "list": 8, "away": 5,
          "gpu": 3, "clock": 5, "full": 4, "stream": 3, "silent": 3,
          "power": 3, "restart agent": 2, "restart kubelet": 2}  # fmt: skip

#: In memory, where there is such a place: nothing here asks what a power cut leaves.
_FOLDER = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None

#: Makes the history of a seed in a directory.
Kind = Callable[[Path, int, pytest.MonkeyPatch], History]


def pairs(base: Path, seed: int, patch: pytest.MonkeyPatch) -> History:
    return History(WorldNode(base, seed, CONFIG, GPUS, patch), seed, Life(12, weights=PAIRS))


def everything(base: Path, seed: int, patch: pytest.MonkeyPatch) -> History:
    return History(WorldNode(base, seed, CONFIG, GPUS, patch), seed, Life(12))


def forgets(base: Path, seed: int, patch: pytest.MonkeyPatch) -> History:
    """The kubelet loses the units of a call when somebody lists meanwhile (kubernetes#137534)."""
    node = WorldNode(base, seed, CONFIG, GPUS, patch, forgets=True)
    history = History(node, seed, Life(16, weights=FORGETS))
    history.ends_meanwhile = True
    history.may_be_refused = True  # it offers units that are held, and asks nobody else
    somebody_lists_within_each_call(patch, history)
    return history


def edits(base: Path, seed: int, patch: pytest.MonkeyPatch) -> History:
    """The sharing of the GPUs is edited."""
    for gpu in GPUS:
        (base / "r" / "mps" / gpu.uuid / "pipe").mkdir(parents=True)
    (base / "r").chmod(0o700)
    return SharingHistory(
        WorldNode(base, seed, SHARING, GPUS, patch), seed, Life(20, weights=EDITS)
    )


def kills(base: Path, seed: int, patch: pytest.MonkeyPatch) -> History:
    """The agent is killed."""
    node = WorldNode(base, seed, CONFIG, GPUS, patch)
    return UnderKills(node, seed, Life(16, weights=KILLS))


def faults(base: Path, seed: int, patch: pytest.MonkeyPatch) -> History:
    """Whatever the node leans on fails for a while."""
    node = WorldNode(base, seed, CONFIG, GPUS, patch)
    return UnderFaults(node, seed, Life(20, weights=FAULTS))


KINDS: tuple[Kind, ...] = (pairs, everything, forgets, edits, kills, faults)


def somebody_lists_within_each_call(patch: pytest.MonkeyPatch, history: History) -> None:
    """A pod ends, and a monitoring agent lists podresources, in the midst of an `Allocate`."""
    settle_before = pairing.settle_before  # the first thing of one

    def within(book: AllocationBook, family: Family, half: Half) -> list[Allocation]:
        if history.ending is not None:
            history.end_now()
            history.node.list_podresources()
        return settle_before(book, family, half)

    patch.setattr(pairing, "settle_before", within)


@contextmanager
def small_shim(patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Has the agent install a shim that is made at once and does nothing."""
    with tempfile.TemporaryDirectory(prefix="vgpu-") as name:
        source, shim = Path(name) / "shim.c", Path(name) / "libvgpu.so"
        source.write_text("int nothing;\n")
        command = ["cc", "-shared", "-Wl,--build-id=sha1", "-o", str(shim), str(source)]
        subprocess.run(command, check=True, timeout=PATIENCE_S)
        patch.setattr(artifacts, "SHIM_PATH", shim)
        yield


@contextmanager
def _rarely_collected() -> Iterator[None]:
    """A world makes many objects and few circles: looking for them takes a twelfth of its life."""
    before = gc.get_threshold()
    gc.set_threshold(20_000, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def live(kind: Kind, seed: int) -> History:
    """Lives one life to its end.

    Raises:
        AssertionError: a promise was broken.
    """
    with (
        tempfile.TemporaryDirectory(prefix="vgpu-", dir=_FOLDER) as base,
        pytest.MonkeyPatch.context() as patch,
        _rarely_collected(),
    ):
        history = kind(Path(base), seed, patch)
        node = history.node
        assert isinstance(node, WorldNode)
        try:
            node.wait_until(lambda: any(node.kubelet.allocatable().values()), "anything is offered")
            node.wait_until(node.is_registered, "all is registered")
            history.run()
        except AssertionError as error:
            raise AssertionError(f"{error}\ntrace {node.turns.trace.hexdigest()}") from error
        finally:
            node.close()
        return history


def live_many(kind: Kind, which: Iterable[int], test: str = "") -> list[History]:
    """Lives one life for each seed of `which`.

    Args:
        test: pytest's name of the test that lives them.

    Raises:
        AssertionError: a promise was broken; says by which command it is broken again.
    """
    lived = []
    for seed in which:
        try:
            lived.append(live(kind, seed))
        except AssertionError as error:
            raise AssertionError(f"{error}\n{how_to_repeat(seed, test)}") from error
    return lived


def live_all(kind: Kind, test: str) -> list[History]:
    """Lives the lives of a kind; returns those whose seeds are the same for ever."""
    fixed, commits = seeds(KINDS.index(kind), len(KINDS))
    lived = live_many(kind, fixed, test)
    live_many(kind, commits, test)
    return lived
