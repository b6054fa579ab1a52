"""How an answer names the GPUs: every form alone and together, for one GPU and several."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from deviceplugin.config.loading import parse_config
from deviceplugin.model.allocations import Allocation
from deviceplugin.model.device_forms import (
    DeviceForms,
    Feature,
    IdStrategy,
    ListStrategy,
    annotation_key,
)
from deviceplugin.model.gpus import UNKNOWN_INDEX, Gpu, MigPart
from deviceplugin.model.units import Half
from deviceplugin.policy.limits.asked import asked_limits
from deviceplugin.store.container_answer import (
    Answer,
    DeviceNode,
    Mount,
    device_parts,
    missing_nodes,
)
from deviceplugin.store.mig_nodes import minors_for
from deviceplugin.store.slice_files import SliceStore
from libvgpu.errors import ConfigError, InventoryError
from libvgpu.limits import ComputeMode, Family

GIB = 1 << 30
ONE = Gpu(2, "GPU-22", "test", 16 * GIB, minor=5)
TWO = Gpu(10, "GPU-11", "test", 16 * GIB, minor=3)
KIND = "k8s.device-plugin.nvidia.com/gpu"
LIST = "/var/run/nvidia-container-devices"
KEY = "cdi.k8s.io/vgpu_ab12cd34ef56"
ALL_LISTS = tuple(each for each in ListStrategy if each is not ListStrategy.AUTO)
COMBINATIONS = [
    strategies
    for size in range(1, len(ALL_LISTS) + 1)
    for strategies in itertools.combinations(ALL_LISTS, size)
]


def parts(
    forms: DeviceForms, *gpus: Gpu, exists: Callable[[str], bool] = lambda _: False
) -> Answer:
    return device_parts(gpus or (ONE,), forms, "ab12cd34ef56", exists)


def one_of(*paths: str) -> Callable[[str], bool]:
    return lambda path: path in paths


# ---- the four forms ------------------------------------------------------------------------------


def test_the_variable_is_the_default() -> None:
    assert parts(DeviceForms()) == Answer(envs={"NVIDIA_VISIBLE_DEVICES": "GPU-22"})


def test_mounts_of_dev_null_name_the_devices() -> None:
    found = parts(DeviceForms((ListStrategy.VOLUME_MOUNTS,)), ONE, TWO)

    assert found == Answer(
        envs={"NVIDIA_VISIBLE_DEVICES": LIST},
        mounts=(
            Mount(f"{LIST}/GPU-22", "/dev/null", False),
            Mount(f"{LIST}/GPU-11", "/dev/null", False),
        ),
    )


def test_a_cdi_annotation_lists_qualified_names() -> None:
    found = parts(DeviceForms((ListStrategy.CDI_ANNOTATIONS,)), ONE, TWO)

    assert found == Answer(annotations={KEY: f"{KIND}=GPU-22,{KIND}=GPU-11"})


def test_cdi_names_have_a_field_of_their_own() -> None:
    found = parts(DeviceForms((ListStrategy.CDI_CRI,)), ONE, TWO)

    assert found == Answer(cdi_devices=(f"{KIND}=GPU-22", f"{KIND}=GPU-11"))


@pytest.mark.parametrize("lists", COMBINATIONS, ids="+".join)
def test_forms_together_give_what_each_gives(lists: tuple[ListStrategy, ...]) -> None:
    found = parts(DeviceForms(lists), ONE, TWO)

    alone = [parts(DeviceForms((name,)), ONE, TWO) for name in lists]
    assert found.mounts == tuple(m for a in alone for m in a.mounts)
    assert found.cdi_devices == tuple(name for a in alone for name in a.cdi_devices)
    assert found.annotations == {k: v for a in alone for k, v in a.annotations.items()}
    # Only one value fits the variable: a list in mounts is for runtimes that trust no variable.
    assert found.envs == {k: v for a in alone for k, v in a.envs.items()}


def test_an_index_may_stand_for_a_gpu() -> None:
    found = parts(DeviceForms(ALL_LISTS, IdStrategy.INDEX), TWO, ONE)

    assert [m.container_path for m in found.mounts] == [f"{LIST}/2", f"{LIST}/10"]
    assert found.cdi_devices == (f"{KIND}=2", f"{KIND}=10")
    assert parts(DeviceForms(ids=IdStrategy.INDEX), TWO, ONE).envs == {
        "NVIDIA_VISIBLE_DEVICES": "2,10"
    }


def test_that_index_is_the_one_that_nvml_counts_now() -> None:
    moved, lost = replace(TWO, nvml_index=0), replace(ONE, nvml_index=UNKNOWN_INDEX)
    by_index = DeviceForms(ALL_LISTS, IdStrategy.INDEX)

    assert parts(by_index, moved).cdi_devices == (f"{KIND}=0",)
    with pytest.raises(InventoryError, match="has no index"):
        parts(by_index, lost)


def test_a_gpu_that_left_the_node_has_no_index() -> None:
    gone = Gpu(-1, "GPU-99", "", 0)

    assert parts(DeviceForms(), gone).envs == {"NVIDIA_VISIBLE_DEVICES": "GPU-99"}
    with pytest.raises(InventoryError, match="GPU-99 has no index"):
        parts(DeviceForms(ids=IdStrategy.INDEX), gone)


def test_the_prefix_of_an_annotation_can_be_chosen() -> None:
    forms = DeviceForms((ListStrategy.CDI_ANNOTATIONS,), annotation_prefix="nvidia.cdi.k8s.io/")

    assert list(parts(forms).annotations) == ["nvidia.cdi.k8s.io/vgpu_ab12cd34ef56"]


# ---- device nodes --------------------------------------------------------------------------------

PASSED = DeviceForms(pass_device_specs=True)


def test_only_nodes_that_are_there_are_passed() -> None:
    there = one_of("/dev/nvidia5", "/dev/nvidia3", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev")

    found = parts(PASSED, ONE, TWO, exists=there).devices

    assert found == tuple(
        DeviceNode(path, path, "rw")
        for path in ("/dev/nvidia5", "/dev/nvidia3", "/dev/nvidiactl", "/dev/nvidia-uvm")
    )
    assert missing_nodes((ONE, TWO), PASSED, there) == ()


def test_no_nodes_are_passed_unless_asked_for() -> None:
    assert parts(DeviceForms(), exists=lambda _: True).devices == ()
    assert missing_nodes((ONE,), DeviceForms(), lambda _: False) == ()


def test_the_nodes_of_another_root_are_mounted_at_their_usual_place() -> None:
    forms = replace(PASSED, dev_root="/run/nvidia/driver/")
    root = "/run/nvidia/driver"

    found = parts(forms, exists=one_of(f"{root}/dev", f"{root}/dev/nvidia5", "/dev/nvidiactl"))

    assert found.devices == (DeviceNode("/dev/nvidia5", f"{root}/dev/nvidia5", "rw"),)


@pytest.mark.parametrize(
    ("seen", "looked_at"),
    [("/driver-root", "/driver-root"), ("/run/nvidia/driver", "/run/nvidia/driver"), ("", "")],
)
def test_an_agent_in_a_container_looks_where_it_sees_the_nodes(seen: str, looked_at: str) -> None:
    forms = replace(PASSED, dev_root="/run/nvidia/driver", container_driver_root="/driver-root")

    found = parts(forms, exists=one_of(f"{seen}/dev", f"{looked_at}/dev/nvidia5"))

    assert found.devices == (DeviceNode("/dev/nvidia5", "/run/nvidia/driver/dev/nvidia5", "rw"),)


def test_what_is_missing_is_named() -> None:
    unnumbered = replace(TWO, minor=None)

    assert missing_nodes((ONE, unnumbered), PASSED, one_of("/dev")) == (
        "that of GPU 10 (NVML reports no minor number)",
        "/dev/nvidia5",
        "/dev/nvidiactl",
    )
    assert parts(PASSED, unnumbered, exists=lambda _: True).devices[0].host_path == "/dev/nvidiactl"


# ---- both halves ---------------------------------------------------------------------------------


@pytest.fixture
def store_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[DeviceForms], SliceStore]:
    monkeypatch.setattr("libvgpu.artifacts.shim_path", lambda: Path("/nowhere/libvgpu.so"))
    monkeypatch.setattr("libvgpu.artifacts.build_id", lambda path: "ab12")
    return lambda forms: SliceStore(tmp_path / "r", tmp_path / "s", forms, (ONE, TWO))


@pytest.mark.parametrize("family", Family)
@pytest.mark.parametrize("lists", COMBINATIONS, ids="+".join)
def test_the_halves_of_a_pair_merge_in_any_order(
    store_of: Callable[[DeviceForms], SliceStore], lists: tuple[ListStrategy, ...], family: Family
) -> None:
    store = store_of(DeviceForms(lists))
    whole = Allocation(
        "id",
        family,
        ONE.uuid,
        GIB,
        core=(f"{ONE.uuid}::c0",),
        memory=(f"{ONE.uuid}::m0",),
        shim_build="ab12",
    )
    opened = replace(whole, memory=())

    core, memory = (
        store.answer(allocation, half, asked_limits(allocation, ComputeMode.STRICT))
        for allocation, half in ((opened, Half.CORE), (whole, Half.MEMORY))
    )

    assert core.joined(memory).envs == memory.joined(core).envs
    assert core.annotations == memory.annotations
    assert core.mounts == memory.mounts
    assert core.cdi_devices == memory.cdi_devices
    assert core.devices == memory.devices
    expected = device_parts((ONE,), DeviceForms(lists), "id", lambda _: False)
    assert expected.envs.items() <= core.envs.items()
    assert set(expected.mounts) <= set(core.mounts)
    assert (core.annotations, core.cdi_devices) == (expected.annotations, expected.cdi_devices)


def test_a_key_is_an_annotations_and_another_allocations_is_another() -> None:
    keys = {annotation_key("cdi.k8s.io/", name) for name in ("a", "b")}

    assert len(keys) == 2
    assert all(len(key.partition("/")[2]) <= 63 for key in keys)


# ---- the config ----------------------------------------------------------------------------------


def configured(flags: str) -> DeviceForms:
    return parse_config(f"version: v1\nflags: {{{flags}}}\n", "config.yaml").forms


def test_without_flags_the_variable_names_uuids() -> None:
    assert parse_config("version: v1\n").forms == DeviceForms()
    assert configured("plugin: {}") == DeviceForms()


def test_every_key_reaches_the_forms() -> None:
    found = configured(
        "nvidiaDriverRoot: /run/nvidia/driver, plugin: {deviceListStrategy: [cdi-cri, envvar, "
        "cdi-cri], deviceIDStrategy: index, passDeviceSpecs: true, cdiAnnotationPrefix: a.b/, "
        "containerDriverRoot: /driver-root, nvidiaCTKPath: /opt/nvidia-ctk, "
        "cdiKind: nvidia.com/gpu, cdiSpecDir: /opt/cdi}"
    )

    assert found == DeviceForms(
        lists=(ListStrategy.ENVVAR, ListStrategy.CDI_CRI),
        ids=IdStrategy.INDEX,
        pass_device_specs=True,
        annotation_prefix="a.b/",
        dev_root="/run/nvidia/driver",
        container_driver_root="/driver-root",
        driver_root="/run/nvidia/driver",
        cdi_kind="nvidia.com/gpu",
        cdi_spec_dir="/opt/cdi",
        hook_path="/opt/nvidia-ctk",
    )


def test_a_list_strategy_may_be_a_word() -> None:
    found = configured("plugin: {deviceListStrategy: volume-mounts}")

    assert found.lists == (ListStrategy.VOLUME_MOUNTS,)


def test_device_nodes_have_a_root_of_their_own() -> None:
    assert configured("nvidiaDriverRoot: /a, nvidiaDevRoot: /b").dev_root == "/b"


def test_features_and_channels_reach_the_forms() -> None:
    forms = parse_config(
        "version: v1\nflags: {gdrcopyEnabled: true, gdsEnabled: true, mofedEnabled: true}\n"
        "imex: {channelIDs: [0, 3], required: true}\n"
    ).forms

    assert forms.features == (Feature.GDRCOPY, Feature.GDS, Feature.MOFED)
    assert (forms.imex_channels, forms.needs_imex_channels) == ((0, 3), True)


def test_features_are_variables() -> None:
    forms = DeviceForms(features=(Feature.GDS, Feature.MOFED))

    envs = parts(forms).envs

    assert envs["NVIDIA_GDS"] == envs["NVIDIA_MOFED"] == "enabled"
    assert "NVIDIA_GDRCOPY" not in envs


def test_a_mig_device_has_its_gpus_node_and_those_of_its_capabilities(tmp_path: Path) -> None:
    file = tmp_path / "mig-minors"
    file.write_text("config 1\ngpu5/gi3/access 30\ngpu5/gi3/ci0/access 31\ngpu5/gi4/access 39\n")
    forms = DeviceForms(pass_device_specs=True)
    part = replace(ONE, uuid="MIG-1", mig=MigPart(ONE.uuid, 0, "1g.5gb", 3, 0))

    minors = minors_for([part], forms, file)
    nodes = device_parts([part], forms, "a", lambda path: path != "/dev/nvidia-modeset", minors)

    assert [node.container_path for node in nodes.devices] == [
        "/dev/nvidia5",
        "/dev/nvidia-caps/nvidia-cap30",
        "/dev/nvidia-caps/nvidia-cap31",
        "/dev/nvidiactl",
        "/dev/nvidia-uvm",
        "/dev/nvidia-uvm-tools",
    ]
    assert minors_for([part], forms, tmp_path / "none") == {}
    assert minors_for([part], DeviceForms(), file) == minors_for([ONE], forms, file) == {}


CHANNEL = "/dev/nvidia-caps-imex-channels/channel"


def test_channels_that_exist_are_given_in_every_form() -> None:
    forms = DeviceForms((ListStrategy.VOLUME_MOUNTS,), pass_device_specs=True, imex_channels=(0, 3))

    answer = parts(forms, exists=one_of(f"{CHANNEL}3"))

    assert answer.envs["NVIDIA_IMEX_CHANNELS"] == "3"
    assert f"{LIST}/imex/3" in {mount.container_path for mount in answer.mounts}
    assert [node.host_path for node in answer.devices] == [f"{CHANNEL}3"]


def test_a_channel_that_must_be_there_and_is_not_refuses_the_container() -> None:
    forms = DeviceForms(imex_channels=(3,), needs_imex_channels=True)

    with pytest.raises(InventoryError, match="IMEX channel 3 does not exist"):
        parts(forms)


WRONG = {
    "list": (
        "plugin: {deviceListStrategy: mounts}",
        "deviceListStrategy is 'mounts', allowed are: envvar, volume-mounts, cdi-annotations, cdi-",
    ),
    "one of a list": (
        "plugin: {deviceListStrategy: [envvar, cdi]}",
        "flags.plugin.deviceListStrategy[1] is 'cdi', allowed are: envvar",
    ),
    "no list": ("plugin: {deviceListStrategy: []}", "deviceListStrategy is an empty list"),
    "id": ("plugin: {deviceIDStrategy: minor}", "deviceIDStrategy is 'minor', allowed are: uuid"),
    "prefix": ("plugin: {cdiAnnotationPrefix: cdi.k8s.io}", "'cdi.k8s.io' cannot begin"),
    "prefix with a space": ("plugin: {cdiAnnotationPrefix: 'a b/'}", "'a b/' cannot begin"),
    "long prefix": (f"plugin: {{cdiAnnotationPrefix: a/{'b' * 50}}}", "cannot begin"),
    "long domain": (f"plugin: {{cdiAnnotationPrefix: {'a' * 254}/}}", "cannot begin"),
    "root": ("nvidiaDevRoot: run/nvidia", "flags.nvidiaDevRoot 'run/nvidia' is not an absolute"),
    "driver root": ("nvidiaDriverRoot: x", "flags.nvidiaDriverRoot 'x' is not an absolute path"),
    "container root": (
        "plugin: {containerDriverRoot: x}",
        "flags.plugin.containerDriverRoot 'x' is not an absolute path",
    ),
    "kind": ("plugin: {cdiKind: gpu}", "cdiKind 'gpu' is not a kind of CDI; give vendor and class"),
    "kind that old runtimes refuse": ("plugin: {cdiKind: a.b/c.d}", "'a.b/c.d' is not a kind"),
    "spec directory": ("plugin: {cdiSpecDir: run/cdi}", "cdiSpecDir 'run/cdi' is not an absolute"),
    "hook": ("plugin: {nvidiaCTKPath: nvidia-ctk}", "'nvidia-ctk' is not an absolute path"),
    "auto and another": (
        "plugin: {deviceListStrategy: [auto, envvar]}",
        "deviceListStrategy names auto and others; give auto alone",
    ),
    "policy": (
        "plugin: {sharedDevicesAllocationPolicy: dense}",
        "is 'dense', allowed are: distributed, packed",
    ),
}


@pytest.mark.parametrize(("flags", "said"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_flag_is_refused_in_one_sentence(flags: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        configured(flags)

    assert said in caught.value.message
    assert caught.value.message.startswith("config.yaml line 2: ")
    assert "\n" not in caught.value.message
