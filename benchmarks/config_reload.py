"""How soon a change of the config file holds in a process that runs.

The real agent serves one container, in which a CUDA program runs under the shim and looks at its
memory without end (``native/limit_client.c``). The file's ``limits:`` rule is changed again and
again, in the three ways in which people and Kubernetes change files, and the program says when it
saw the new limit. Counted from the moment before the file is touched. (A ConfigMap volume itself
follows its ConfigMap about a minute later; that is the kubelet's.)
"""

import queue
import random
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from deviceplugin.testing.lean_kubelet import NAMESPACE, LeanPod
from libvgpu.allocation_dirs import read_meta
from libvgpu.artifacts import SIM_LIBRARY_DIR
from libvgpu.errors import VgpuError

from .agent_node import CONFIG, MIB, RESOURCES, UNIT_BYTES, AgentNode, open_node, profiles
from .figure import Figure, Measurement, Options, spread
from .nulldriver import built_client
from .repeats import OURS, say

CHANGES = 20
MOST_MS = 1000.0
_GPUS = 2
_CORE, _MEMORY_UNITS = 50, 60
_LEAST_MIB, _STEP_MIB, _STEPS = 8192, 64, 300
_PATIENCE_S = 15.0
_NAME_KNOWN_S = 15.0
_FILE = "config.yaml"
_DATA = "..data"


@dataclass
class ConfigDirectory:
    """A directory as the kubelet makes it of a ConfigMap: links through ``..data``.

    ``config.yaml`` leads through ``..data`` to the directory of a version; a new version is a new
    directory and one rename of the link.
    """

    directory: Path
    version: int = 0

    @property
    def path(self) -> Path:
        """What programs are told."""
        return self.directory / _FILE

    def make(self, text: str) -> None:
        """Makes it with a first version."""
        self.directory.mkdir()
        self.swap_links(text)
        self.path.symlink_to(Path(_DATA, _FILE))

    def rewrite(self, text: str) -> None:
        """Writes into the file that is there."""
        self.path.write_text(text)

    def rename_over(self, text: str) -> None:
        """Puts a new file in the old one's place, as editors do."""
        real = self.path.resolve()
        fresh = real.with_suffix(".new")
        fresh.write_text(text)
        fresh.replace(real)

    def swap_links(self, text: str) -> None:
        """Makes a new version and turns the link to it."""
        self.version += 1
        fresh = self.directory / f"..version-{self.version}"
        fresh.mkdir()
        (fresh / _FILE).write_text(text)
        turned = self.directory / "..data_tmp"
        turned.symlink_to(fresh.name)
        turned.replace(self.directory / _DATA)


class Watcher:
    """The program in the slice and what it sees."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self._seen: queue.SimpleQueue[tuple[int, int]] = queue.SimpleQueue()
        assert process.stdout is not None
        self._reader = threading.Thread(target=self._read, args=(process.stdout,), daemon=True)
        self._reader.start()

    def _read(self, lines: IO[str]) -> None:
        for line in lines:
            at_ns, total_bytes = line.split()
            self._seen.put((int(at_ns), int(total_bytes)))

    def wait_for(self, total_bytes: int) -> int:
        """Returns when it saw this limit, in nanoseconds of CLOCK_MONOTONIC.

        Raises:
            VgpuError: it does not in time, or has ended.
        """
        deadline = time.monotonic() + _PATIENCE_S
        last = "nothing"
        while (left := deadline - time.monotonic()) > 0:
            try:
                at_ns, seen_bytes = self._seen.get(timeout=min(left, 1.0))
            except queue.Empty:
                if self._process.poll() is not None:
                    raise VgpuError(
                        f"the program in the slice ended with {self._process.returncode}"
                    ) from None
                continue
            if seen_bytes == total_bytes:
                return at_ns
            last = f"{seen_bytes // MIB} MiB"
        raise VgpuError(
            f"after {_PATIENCE_S:g} s a running process does not have the limit of "
            f"{total_bytes // MIB} MiB; it last saw {last}"
        )

    def stop(self) -> None:
        """Ends the program."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


@contextmanager
def _watching(node: AgentNode, pod: LeanPod, client: Path) -> Iterator[Watcher]:
    """Runs the program in a pod's slice, on the host's paths of its mounts."""
    with open(node.base / "client.log", "ab") as log:
        process = subprocess.Popen(
            [str(client)],
            env=node.environment_in(pod),
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
        )
    watcher = Watcher(process)
    try:
        yield watcher
    finally:
        watcher.stop()


def _text(limit_mib: int) -> str:
    return CONFIG + (
        f"limits:\n- match: {{namespace: {NAMESPACE}, container: '*'}}\n  memory: {limit_mib}Mi\n"
    )


def measure(options: Options) -> list[Measurement]:
    """Takes the figure.

    Raises:
        VgpuError: there is no compiler, the agent or the program fails, or a limit never arrives.
    """
    configs: list[ConfigDirectory] = []

    def make_config(base: Path) -> Path:
        configs.append(ConfigDirectory(base / "config"))
        configs[0].make(CONFIG)
        return configs[0].path

    taken: dict[str, list[float]] = {}
    with (
        open_node(profiles()[:_GPUS], make_config) as node,
        built_client(SIM_LIBRARY_DIR / "libcuda.so.1", "limit_client") as client,
    ):
        pod = node.kubelet.admit("pod", dict(zip(RESOURCES, (_CORE, _MEMORY_UNITS), strict=True)))
        node.kubelet.start_container(pod)
        slice_ = Path(pod.mounts["/run/vgpu/limits"]).parent
        node.wait_for(
            "the agent does not know whose the slice is",
            lambda: read_meta(slice_).pod == pod.name,
            _NAME_KNOWN_S,
        )
        with _watching(node, pod, client) as watcher:
            watcher.wait_for(_MEMORY_UNITS * UNIT_BYTES)
            ways: Mapping[str, Callable[[str], None]] = {
                "rewritten in place": configs[0].rewrite,
                "another file renamed over it": configs[0].rename_over,
                "links swapped, as a ConfigMap volume does": configs[0].swap_links,
            }
            changes = 0
            for number in range(options.rounds):
                for way, write in ways.items():
                    say(f"change {number + 1} of {options.rounds}: {way}")
                    time.sleep(random.random() / 2)  # wherever the agent stands in its rounds
                    changes += 1
                    limit_mib = _LEAST_MIB + _STEP_MIB * (changes % _STEPS)
                    began_ns = time.monotonic_ns()
                    write(_text(limit_mib))
                    seen_ns = watcher.wait_for(limit_mib * MIB)
                    taken.setdefault(way, []).append((seen_ns - began_ns) / 1e6)
    return [m for way, samples in taken.items() for m in _summarise(way, samples)]


def _summarise(way: str, samples: list[float]) -> Iterator[Measurement]:
    case = f"config file {way}"
    what = "until a running process has the limit"
    yield spread(case, OURS, what, "ms", samples)
    worst = round(max(samples), 3)
    yield replace(
        spread(case, OURS, f"the same, worst of {len(samples)}", "ms", [worst]), most=MOST_MS
    )


FIGURE = Figure(
    name="reload",
    summary="how soon a change of the config file holds in a running process",
    label="simulated GPU",
    measure=measure,
    rounds=CHANGES,
)
