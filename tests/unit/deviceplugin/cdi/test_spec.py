"""The CDI spec of a node: what stands in it, and that CDI takes it."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from deviceplugin.cdi.driver_files import DriverFiles, Library
from deviceplugin.cdi.mig_minors import parse_mig_minors
from deviceplugin.cdi.spec import Built, NodeDevices, build_spec, without_devices
from deviceplugin.model.gpus import UNKNOWN_INDEX, Gpu, MigPart

KIND = "k8s.device-plugin.nvidia.com/gpu"
X86 = "x86_64"
LIB = "/usr/lib/x86_64-linux-gnu"
CUDA = Library(
    f"{LIB}/libcuda.so.535.1",
    f"{LIB}/libcuda.so.535.1",
    ("libcuda.so", "libcuda.so.1", "libcuda.so.535.1"),
)
NVML = Library(
    f"{LIB}/libnvidia-ml.so.535.1",
    f"{LIB}/libnvidia-ml.so.535.1",
    ("libnvidia-ml.so.1", "libnvidia-ml.so.535.1"),
)
DRIVER = DriverFiles(
    "535.1",
    (CUDA, NVML),
    (("nvidia-smi", "/usr/bin/nvidia-smi"),),
    (("/lib/firmware/nvidia/535.1/gsp_ga10x.bin", "/lib/firmware/nvidia/535.1/gsp_ga10x.bin"),),
)
ONE = Gpu(0, "GPU-aa", "test", 1, minor=3)
TWO = Gpu(1, "GPU-bb", "test", 1, minor=0)
MIG_MINORS = parse_mig_minors(
    "config 1\nmonitor 2\ngpu3/gi1/access 30\ngpu3/gi1/ci0/access 31\ngpu3/gi2/access 39\n"
)


def mig(number: int, instance: int) -> Gpu:
    part = MigPart("GPU-aa", number, "1g.5gb", instance, 0)
    return Gpu(0, f"MIG-{number}", "test", 1, mig=part)


CUT = replace(ONE, is_mig_capable=True, is_mig_enabled=True, mig_devices=(mig(0, 1),))


def node(
    exists: Callable[[str], bool] = lambda _: True, root: str = "/", is_loaded: bool = True
) -> NodeDevices:
    return NodeDevices(root, exists, is_loaded, MIG_MINORS)


def built(*gpus: Gpu, **more: Any) -> Built:
    given: dict[str, Any] = {"driver": DRIVER, "devices": node(), "machine": X86} | more
    return build_spec(KIND, gpus or (ONE, TWO), **given)


def content(*gpus: Gpu, **more: Any) -> dict[str, Any]:
    found = built(*gpus, **more).content
    assert found is not None
    return found


def edits(spec: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = [d["containerEdits"] for d in spec["devices"] if d["name"] == name]
    return dict(found)


def nodes(of: dict[str, Any]) -> list[str]:
    return [each["path"] for each in of.get("deviceNodes", ())]


# ---- the rules of CDI, as its SPEC and its own library have them ---------------------------------

EDITS = {"env", "deviceNodes", "mounts", "hooks"}
NODE = {"path", "hostPath", "permissions"}
MOUNT = {"hostPath", "containerPath", "options"}
HOOK = {"hookName", "path", "args"}
DEVICE_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.:]*[A-Za-z0-9])?")
ORDER = ["0.3.0", "0.4.0", "0.5.0", "0.6.0"]


def assert_edits(given: dict[str, Any]) -> None:
    assert given and not given.keys() - EDITS
    assert all(given.values()), "an empty list is left out"
    assert all(re.fullmatch(r"[^=]+=.*", each) for each in given.get("env", ()))
    for each in given.get("deviceNodes", ()):
        assert {"path"} <= each.keys() <= NODE
        assert set(each["permissions"]) <= set("rwm")
    for each in given.get("mounts", ()):
        assert each.keys() == MOUNT
        assert each["hostPath"].startswith("/")
        assert each["containerPath"].startswith("/")
        assert isinstance(each["options"], list)
    for each in given.get("hooks", ()):
        assert each.keys() == HOOK
        assert each["hookName"] == "createContainer"
        assert each["path"].startswith("/")


def assert_valid(spec: dict[str, Any]) -> None:
    assert spec.keys() == {"cdiVersion", "kind", "devices", "containerEdits"}
    names = [device["name"] for device in spec["devices"]]
    assert names
    assert len(set(names)) == len(names)
    assert all(DEVICE_NAME.fullmatch(name) for name in names)
    parts = [spec["containerEdits"], *(device["containerEdits"] for device in spec["devices"])]
    for part in parts:
        assert_edits(part)
    needs = "0.3.0"
    if any(name[0].isdigit() for name in names) or any(
        "hostPath" in each for part in parts for each in part.get("deviceNodes", ())
    ):
        needs = "0.5.0"
    assert ORDER.index(spec["cdiVersion"]) >= ORDER.index(needs)


CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "hook": {"hook": "/usr/bin/nvidia-cdi-hook"},
    "other root": {"devices": node(root="/run/nvidia/driver")},
    "simulated": {"devices": node(lambda _: False, is_loaded=False), "simulated": "/tmp/machine"},
    "nothing loaded": {"devices": node(lambda _: False, is_loaded=False)},
    "no files": {"driver": DriverFiles("", ())},
    "other machine": {"machine": "riscv64"},
}


@pytest.mark.parametrize("more", CASES.values(), ids=CASES.keys())
@pytest.mark.parametrize("gpus", [(ONE,), (ONE, TWO), (CUT, TWO)], ids=["one", "two", "mig"])
def test_cdi_takes_every_spec(gpus: tuple[Gpu, ...], more: dict[str, Any]) -> None:
    assert_valid(content(*gpus, **more))


# ---- devices -------------------------------------------------------------------------------------


def test_a_gpu_has_its_uuid_its_index_and_a_part_in_all() -> None:
    spec = content()

    assert {device["name"] for device in spec["devices"]} == {"GPU-aa", "0", "GPU-bb", "1", "all"}
    assert nodes(edits(spec, "GPU-aa")) == nodes(edits(spec, "0")) == ["/dev/nvidia3"]
    assert nodes(edits(spec, "all")) == ["/dev/nvidia3", "/dev/nvidia0"]


def test_what_all_gpus_need_stands_once() -> None:
    common = content()["containerEdits"]

    assert common["env"] == ["NVIDIA_VISIBLE_DEVICES=void"]
    assert nodes(common) == [
        "/dev/nvidiactl",
        "/dev/nvidia-uvm",
        "/dev/nvidia-uvm-tools",
        "/dev/nvidia-modeset",
    ]
    targets = [mount["containerPath"] for mount in common["mounts"]]
    assert "/usr/bin/nvidia-smi" in targets
    assert "/lib/firmware/nvidia/535.1/gsp_ga10x.bin" in targets


def test_nodes_of_the_drivers_helpers_are_left_out_where_they_are_not_there() -> None:
    there = node(lambda path: path != "/dev/nvidia-modeset")

    assert "/dev/nvidia-modeset" not in nodes(content(devices=there)["containerEdits"])
    assert "/dev/nvidia-uvm-tools" in nodes(content(devices=there)["containerEdits"])


def test_a_loaded_driver_has_its_nodes_named_though_they_are_missing() -> None:
    """So that the check before a start can say which one is."""
    spec = content(devices=node(lambda _: False))

    assert nodes(edits(spec, "GPU-aa")) == ["/dev/nvidia3"]
    assert nodes(spec["containerEdits"]) == ["/dev/nvidiactl", "/dev/nvidia-uvm"]


def test_without_a_kernel_module_only_nodes_that_are_there_are_named() -> None:
    spec = content(devices=node(lambda path: path == "/dev/nvidia3", is_loaded=False))

    assert nodes(edits(spec, "GPU-aa")) == ["/dev/nvidia3"]
    assert nodes(edits(spec, "GPU-bb")) == nodes(spec["containerEdits"]) == []


def test_a_root_of_the_driver_shows_in_the_nodes_host_path() -> None:
    spec = content(devices=node(root="/run/nvidia/driver/"))

    (found,) = edits(spec, "GPU-aa")["deviceNodes"]
    assert found == {
        "path": "/dev/nvidia3",
        "hostPath": "/run/nvidia/driver/dev/nvidia3",
        "permissions": "rw",
    }


def test_what_the_config_asks_for_in_addition_comes_with_every_gpu() -> None:
    spec = content(devices=replace(node(), more=("/dev/gdrdrv",)))

    assert nodes(spec["containerEdits"])[-1] == "/dev/gdrdrv"


def test_a_gpu_without_a_minor_number_is_left_out_and_said() -> None:
    found = built(replace(ONE, minor=None), TWO)

    assert found.names == {"GPU-bb", "1", "all"}
    assert found.problems == ("GPU GPU-aa has no device node: NVML reports no minor number",)


def test_a_spec_without_any_device_is_none() -> None:
    assert built(replace(ONE, minor=None)).content is None
    assert build_spec(KIND, (), DRIVER, node(), X86).content is None


# ---- MIG -----------------------------------------------------------------------------------------


def test_a_mig_device_opens_its_gpu_and_its_two_capabilities() -> None:
    spec = content(CUT, TWO)

    assert {d["name"] for d in spec["devices"]} == {"MIG-0", "0:0", "GPU-bb", "1", "all"}
    assert nodes(edits(spec, "MIG-0")) == [
        "/dev/nvidia3",
        "/dev/nvidia-caps/nvidia-cap30",
        "/dev/nvidia-caps/nvidia-cap31",
    ]


def test_a_mig_device_given_alone_finds_its_gpus_node() -> None:
    spec = content(mig(0, 1), replace(CUT, mig_devices=()))

    assert nodes(edits(spec, "MIG-0"))[0] == "/dev/nvidia3"


def test_a_mig_device_that_the_driver_lists_no_minors_of_is_left_out_and_said() -> None:
    found = built(replace(CUT, mig_devices=(mig(0, 1), mig(1, 2))))

    assert found.names == {"MIG-0", "0:0", "all"}
    (problem,) = found.problems
    assert "MIG-1" in problem
    assert "GPU instance 2, compute instance 0 of GPU 3" in problem


# ---- how the loader finds the libraries ----------------------------------------------------------


def test_without_a_hook_libraries_have_the_names_that_programs_ask_for() -> None:
    mounts = {m["containerPath"]: m for m in content()["containerEdits"]["mounts"]}

    for directory in ("/usr/lib64", LIB):
        for name in CUDA.names:
            assert mounts[f"{directory}/{name}"]["hostPath"] == CUDA.host_path
        assert mounts[f"{directory}/libnvidia-ml.so.1"]["hostPath"] == NVML.host_path
    assert mounts[f"{LIB}/libcuda.so.1"]["options"][0] == "ro"
    assert "hooks" not in content()["containerEdits"]


@pytest.mark.parametrize(
    ("hook", "begin"),
    [
        ("/usr/bin/nvidia-cdi-hook", ["nvidia-cdi-hook"]),
        ("/opt/toolkit/nvidia-ctk", ["nvidia-ctk", "hook"]),
    ],
)
def test_with_a_hook_libraries_keep_their_path(hook: str, begin: list[str]) -> None:
    common = content(hook=hook)["containerEdits"]

    libraries = [m["containerPath"] for m in common["mounts"] if ".so" in m["containerPath"]]
    assert libraries == [CUDA.path, NVML.path]
    links, cache = common["hooks"]
    assert links["path"] == cache["path"] == hook
    assert links["args"] == [*begin, "create-symlinks", f"--link=libcuda.so.1::{LIB}/libcuda.so"]
    assert cache["args"] == [*begin, "update-ldcache", f"--folder={LIB}"]


# ---- the simulated machine -----------------------------------------------------------------------


def test_a_simulated_gpu_is_seen_by_variables() -> None:
    spec = content(devices=node(lambda _: False, is_loaded=False), simulated="/tmp/machine")

    assert "VGPU_SIM_VISIBLE=GPU-bb" in edits(spec, "1")["env"]
    assert "VGPU_SIM_VISIBLE=GPU-aa,GPU-bb" in edits(spec, "all")["env"]
    common = spec["containerEdits"]
    assert "VGPU_SIM_MACHINE=/run/vgpu-sim" in common["env"]
    (machine,) = [m for m in common["mounts"] if m["hostPath"] == "/tmp/machine"]
    assert machine["containerPath"] == "/run/vgpu-sim"
    assert machine["options"][0] == "rw"


# ---- next to somebody else's ---------------------------------------------------------------------


def test_devices_that_somebody_else_has_are_left_to_them() -> None:
    mine = without_devices(built(), frozenset({"0", "1", "all"}))

    assert mine.names == {"GPU-aa", "GPU-bb"}
    assert mine.content is not None
    assert_valid(mine.content)
    assert mine.content["cdiVersion"] == "0.3.0"  # no name begins with a digit any more


def test_nothing_is_left_where_somebody_else_has_all() -> None:
    assert without_devices(built(), built().names).content is None


def test_an_index_is_the_one_that_nvml_counts_now() -> None:
    moved, lost = replace(TWO, nvml_index=0), replace(ONE, nvml_index=UNKNOWN_INDEX)

    names = [each["name"] for each in content(lost, moved)["devices"]]

    assert names == ["GPU-aa", "GPU-bb", "0", "all"]
