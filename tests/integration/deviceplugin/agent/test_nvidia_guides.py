"""The examples of NVIDIA's guides, word for word, on simulated machines: what a kubelet sees, which
labels there are, and that pods run.

From the README of its device plugin (time-slicing, named configs), the GPU Operator's pages on
time-slicing and MIG, and the README of GPU Feature Discovery.
"""

import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from deviceplugin.testing import AdmissionFailed
from support import ROOT
from support.node.simulated import SimulatedNode
from support.sim.programs import run
from support.waiting import wait_until

GPU = "nvidia.com/gpu"
TIME_SLICED = """\
version: v1
flags:
  migStrategy: none
sharing:
  timeSlicing:
    renameByDefault: {rename}
    failRequestsGreaterThanOne: {fail}
    resources:
    - name: nvidia.com/gpu
      replicas: {replicas}
"""
MIG = "version: v1\nflags:\n  migStrategy: {}\n"
#: Three vectors of which two are added, and a copy back: the guides' first pod.
VECTOR_ADD = """
open_context()
size = 50000 * 4
a, b, c = (check(cuda.cuMemAlloc(size)) for _ in range(3))
for vector in (a, b):
    check(cuda.cuMemcpyHtoD(vector, bytes(size), size))
Spinner(20_000).launch()
check(cuda.cuCtxSynchronize())
back = bytearray(size)
check(cuda.cuMemcpyDtoH(back, c, size))
print("Test PASSED")
"""
#: Multiplications of large matrices, one after the other: the guides' load for sharing.
GEMM = """
open_context()
matrices = [check(cuda.cuMemAlloc(4096 * 4096 * 8)) for _ in range(3)]
spinner = Spinner(2_000_000)
for _ in range(25):
    spinner.launch()
check(cuda.cuCtxSynchronize())
print("GEMM done", check(cuda.cuMemGetInfo())[1] >> 20)
"""


@contextmanager
def node_of(
    spec: str, config: str, *resources: str, options: Sequence[str] = (), **variables: str
) -> Iterator[SimulatedNode]:
    with tempfile.TemporaryDirectory(prefix="vgpu-", dir="/tmp") as name:
        base = Path(name)
        (base / "machine-type").write_text("Guide")
        given = {
            "GFD_OUTPUT_FILE": str(base / "gfd"),
            "GFD_MACHINE_TYPE_FILE": str(base / "machine-type"),
            **variables,
        }
        with SimulatedNode(base, spec, config, resources, options, given) as node:
            yield node


def labels(node: SimulatedNode) -> dict[str, str]:
    path = node.base / "gfd"
    text = wait_until(lambda: path.exists() and path.read_text(), "the feature file is written")
    lines = dict(line.split("=", 1) for line in str(text).splitlines())
    return {key.removeprefix("nvidia.com/"): value for key, value in lines.items()}


def told(node: SimulatedNode, *keys: str) -> dict[str, str | None]:
    found = labels(node)
    return {key: found.get(key) for key in keys}


def works(node: SimulatedNode, device: str, code: str = VECTOR_ADD) -> str:
    return run(node.machine, code, {"CUDA_VISIBLE_DEVICES": device})


def test_replicas_5_on_8_t4_are_40_gpus() -> None:
    config = TIME_SLICED.format(rename="false", fail="true", replicas=5)
    with node_of("t4*8", config, GPU) as node:
        assert node.kubelet.allocatable() == {GPU: 40}
        pods = [node.admit(f"p{n}", gpu=1) for n in range(8)]
        devices = [device for pod in pods for device in node.devices(pod)]
        assert Counter(devices) == {gpu.uuid: 1 for gpu in node.machine.devices}
        assert works(node, devices[0]) == "Test PASSED\n"
        with pytest.raises(AdmissionFailed, match="failRequestsGreaterThanOne"):
            node.admit("greedy", gpu=2)
        assert told(
            node, "gpu.product", "gpu.count", "gpu.replicas", "gpu.sharing-strategy", "gpu.memory",
            "gpu.family", "gpu.compute.major", "gpu.compute.minor", "gpu.machine", "mig.capable",
            "mps.capable",
        ) == {
            "gpu.product": "Tesla-T4-SHARED",
            "gpu.count": "8",
            "gpu.replicas": "5",
            "gpu.sharing-strategy": "time-slicing",
            "gpu.memory": str(node.machine.devices[0].profile.memory_bytes >> 20),
            "gpu.family": "turing",
            "gpu.compute.major": "7",
            "gpu.compute.minor": "5",
            "gpu.machine": "Guide",
            "mig.capable": "false",
            "mps.capable": "false",
        }  # fmt: skip


def test_renamed_replicas_keep_the_product() -> None:
    config = TIME_SLICED.format(rename="true", fail="false", replicas=2)
    with node_of("h100*2", config, f"{GPU}.shared") as node:
        assert node.kubelet.allocatable() == {f"{GPU}.shared": 4}
        assert told(node, "gpu.product", "gpu.replicas", "gpu.sharing-strategy", "gpu.family") == {
            "gpu.product": "NVIDIA-H100-80GB-HBM3",
            "gpu.replicas": "2",
            "gpu.sharing-strategy": "time-slicing",
            "gpu.family": "hopper",
        }
        (both,) = (sorted(node.devices(node.admit("two", **{"gpu.shared": 2}))),)
        assert both == sorted(gpu.uuid for gpu in node.machine.devices)


def test_without_any_config_each_gpu_is_one_and_two_pods_share_none() -> None:
    with node_of("a100-40g*2", "version: v1\n", GPU) as node:
        assert node.kubelet.allocatable() == {GPU: 2}
        one, other = (node.devices(node.admit(name, gpu=1)) for name in ("a", "b"))
        assert one != other
        assert works(node, one[0], GEMM).startswith("GEMM done")
        assert told(node, "gpu.product", "gpu.replicas", "mig.capable") == {
            "gpu.product": "NVIDIA-A100-SXM4-40GB",
            "gpu.replicas": "1",
            "mig.capable": "true",
        }


def test_flags_of_feature_discovery_come_by_their_variables() -> None:
    with node_of("t4", "version: v1\n", GPU, GFD_NO_TIMESTAMP="true", GFD_ONESHOT="true") as node:
        assert "gfd.timestamp" not in labels(node)
        node.stop_agent()
        assert (node.base / "gfd").exists(), "what was written once stays"
        node.start_agent()
    with node_of("t4", "version: v1\n", GPU, options=["--sleep-interval=1s"]) as node:
        assert "gfd.timestamp" in labels(node)
        node.stop_agent()
        assert not (node.base / "gfd").exists()
        node.start_agent()


def test_named_configs_are_chosen_by_their_names(tmp_path: Path) -> None:
    (tmp_path / "default").write_text("version: v1\n")
    (tmp_path / "a100-80gb-config").write_text(
        TIME_SLICED.format(rename="false", fail="false", replicas=2)
    )
    by_default = [f"--config={tmp_path}"]
    with node_of("a100-80g*2", "version: v1\n", GPU, options=by_default) as node:
        assert node.kubelet.allocatable() == {GPU: 2}
        node.stop_agent()
        node.options.append("--default-config=a100-80gb-config")
        node.start_agent()
        assert node.kubelet.allocatable() == {GPU: 4}


SEVEN = "mig=1g.5gb*7"


def test_strategy_single_makes_seven_gpus_of_one() -> None:
    with node_of(f"a100-40g/{SEVEN},a100-40g/{SEVEN}", MIG.format("single"), GPU) as node:
        assert node.kubelet.allocatable() == {GPU: 14}
        (device,) = node.devices(node.admit("job", gpu=1))
        assert device.startswith("MIG-")
        assert works(node, device) == "Test PASSED\n"
        assert works(node, device, GEMM) == "GEMM done 4864\n"
        assert told(
            node, "gpu.product", "gpu.count", "gpu.memory", "gpu.multiprocessors", "gpu.slices.gi",
            "gpu.slices.ci", "gpu.engines.copy", "mig.strategy",
        ) == {
            "gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb",
            "gpu.count": "14",
            "gpu.memory": "4864",
            "gpu.multiprocessors": "14",
            "gpu.slices.gi": "1",
            "gpu.slices.ci": "1",
            "gpu.engines.copy": "1",
            "mig.strategy": "single",
        }  # fmt: skip


@pytest.mark.parametrize(
    ("layout", "counts"),
    [
        ("1g.5gb*7", {"1g.5gb": 7}),
        ("2g.10gb*3", {"2g.10gb": 3}),
        ("3g.20gb+2g.10gb+1g.5gb", {"3g.20gb": 1, "2g.10gb": 1, "1g.5gb": 1}),
    ],
)
def test_strategy_mixed_names_each_profile(layout: str, counts: dict[str, int]) -> None:
    resources = {f"nvidia.com/mig-{profile}": count for profile, count in counts.items()}
    with node_of(f"a100-40g/mig={layout},a100-40g", MIG.format("mixed"), GPU, *resources) as node:
        assert node.kubelet.allocatable() == {GPU: 1, **resources}
        for profile, count in counts.items():
            (device,) = node.devices(node.admit(f"job-{profile}", **{f"mig-{profile}": 1}))
            assert works(node, device) == "Test PASSED\n"
            found = told(node, f"mig-{profile}.count", f"mig-{profile}.product")
            assert list(found.values()) == [
                str(count),
                f"NVIDIA-A100-SXM4-40GB-MIG-{profile}",
            ]


def test_one_file_serves_a_mixed_fleet() -> None:
    config = (ROOT / "deploy/examples/fleet.yaml").read_text()
    shared, core = f"{GPU}.shared", "nvidia.com/vgpu-core"
    with node_of("t4*2", config, shared) as node:
        assert node.kubelet.allocatable() == {shared: 8}
        assert "an entry of the config is for no GPU of this node" in node.log
    layout = "a100-40g/mig=3g.20gb+2g.10gb+1g.5gb,a100-40g"
    profiles = [f"nvidia.com/mig-{profile}" for profile in ("3g.20gb", "2g.10gb", "1g.5gb")]
    with node_of(layout, config, core, *profiles) as node:
        offered = node.kubelet.allocatable()
        assert {name: offered[name] for name in (core, *profiles)} == {
            core: 100,
            **dict.fromkeys(profiles, 1),
        }
        assert shared not in offered


def test_a_mix_under_single_is_invalid_as_the_label_says() -> None:
    spec = "a100-40g/mig=3g.20gb+2g.10gb,a100-40g"
    with node_of(spec, MIG.format("single")) as node:
        found = told(node, "gpu.product", "gpu.count", "gpu.replicas", "gpu.memory")
        assert found == {
            "gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-INVALID",
            "gpu.count": "0",
            "gpu.replicas": "0",
            "gpu.memory": "0",
        }
        assert node.kubelet.allocatable() == {}
        assert "nothing of a GPU is offered" in node.log


def test_replicas_of_mig_devices() -> None:
    config = MIG.format("mixed") + (
        "sharing:\n  timeSlicing:\n    resources:\n"
        "    - {name: nvidia.com/mig-1g.10gb, replicas: 4}\n"
    )
    with node_of("h100/mig=1g.10gb*7", config, "nvidia.com/mig-1g.10gb") as node:
        assert node.kubelet.allocatable() == {"nvidia.com/mig-1g.10gb": 28}
        assert told(node, "mig-1g.10gb.replicas", "mig-1g.10gb.sharing-strategy") == {
            "mig-1g.10gb.replicas": "4",
            "mig-1g.10gb.sharing-strategy": "time-slicing",
        }
