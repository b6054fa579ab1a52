"""The GPU of `make test-gpu`: looked for, and asked for its sizes, before anything runs."""

from contextlib import ExitStack
from dataclasses import dataclass, field

import pynvml
import pytest

from benchmarks.gpu import Gpu
from libvgpu.errors import VgpuError
from libvgpu.sizes import format_size
from support.exercise.driver_sizes import Sizes
from support.exercise.gpu_to_test import gpu_to_test
from support.exercise.process import Result
from support.exercise.runner import run_on, sizes_of


@dataclass
class GpuRun:
    """The GPU, and what its exercises came to so far.

    Attributes:
        gpu: nothing but these tests runs on it.
        driver: its version.
        sizes: what the driver gives.
    """

    gpu: Gpu
    driver: str
    sizes: Sizes
    _results: dict[str, dict[str, Result]] = field(default_factory=dict)
    _told: set[tuple[str, str]] = field(default_factory=set)

    def result(self, family: str, name: str) -> Result:
        """Returns what one exercise came to.

        A file of them runs once, and again when one of its results is asked for again: then a
        measurement is repeated (`support.suite.quiet`).
        """
        if family not in self._results or (family, name) in self._told:
            self._told -= {told for told in self._told if told[0] == family}
            self._results[family] = run_on(self.gpu, self.sizes, family)
        self._told.add((family, name))
        return self._results[family][name]


RUN = pytest.StashKey[GpuRun]()
OPEN = pytest.StashKey[ExitStack]()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves the GPU alone unless ``-m`` names it."""
    if "gpu" in config.option.markexpr:
        return
    dropped = [item for item in items if item.get_closest_marker("gpu")]
    items[:] = [item for item in items if not item.get_closest_marker("gpu")]
    if dropped:
        config.hook.pytest_deselected(items=dropped)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Ends the run with a sentence where the GPU cannot be tested."""
    wanted = any(item.get_closest_marker("gpu") for item in session.items)
    if not wanted or session.config.option.collectonly:
        return
    stack = session.config.stash[OPEN] = ExitStack()
    try:
        gpu = stack.enter_context(gpu_to_test())
        driver = str(pynvml.nvmlSystemGetDriverVersion())
        session.config.stash[RUN] = GpuRun(gpu, driver, sizes_of(gpu))
    except VgpuError as error:
        pytest.exit(f"no test ran on a GPU: {error.message}", returncode=1)


def pytest_report_collectionfinish(config: pytest.Config) -> list[str]:
    """Says what the results are of."""
    run = config.stash.get(RUN, None)
    if run is None:
        return []
    sizes = run.sizes
    context, block, pool = map(
        format_size, (sizes.context_bytes, sizes.block_bytes, sizes.pool_bytes)
    )
    asked = (
        f"a context takes {context}, memory comes by {block}, pools grow by {pool}, "
        f"calls of before CUDA 3.2 give {sizes.outdated_code}"
    )
    return [
        f"GPU: {run.gpu.title}, driver {run.driver}; GPUs of this machine: {sizes.gpus}",
        f"asked of it: {asked}",
    ]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Lets go of NVML."""
    if OPEN in session.config.stash:
        session.config.stash[OPEN].close()


@pytest.fixture(scope="session")
def gpu_run(request: pytest.FixtureRequest) -> GpuRun:
    """The GPU of this run."""
    return request.config.stash[RUN]
