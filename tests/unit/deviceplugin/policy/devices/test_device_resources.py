"""Which resource each GPU and MIG device is."""

from dataclasses import replace

import pytest

from deviceplugin.config.loading import parse_config
from deviceplugin.model.gpus import Gpu, MigPart
from deviceplugin.policy.devices.layout import Layout, lay_out
from libvgpu.limits import Family

GIB = 1 << 30


def gpu(index: int, product: str = "NVIDIA A100-SXM4-40GB", *profiles: str) -> Gpu:
    uuid = f"GPU-{index}"
    parts = tuple(
        Gpu(
            index,
            f"MIG-{index}-{n}",
            f"{product} MIG {p}",
            5 * GIB,
            mig=MigPart(uuid, n, p, n + 1, 0),
        )
        for n, p in enumerate(profiles)
    )
    return Gpu(index, uuid, product, 40 * GIB, is_mig_enabled=bool(parts), mig_devices=parts)


def empty(index: int) -> Gpu:
    return Gpu(index, f"GPU-{index}", "NVIDIA A100-SXM4-40GB", 40 * GIB, is_mig_enabled=True)


def laid_out(text: str, *gpus: Gpu) -> Layout:
    return lay_out(parse_config("version: v1\n" + text, "c"), gpus)


def offered(layout: Layout) -> dict[str, list[str]]:
    return {r.name: [i for d in r.devices for i in d.ids] for r in layout.resources}


def reasons(layout: Layout) -> dict[str, str]:
    return {each.gpu.uuid: each.reason for each in layout.withheld}


MIXED, SINGLE = "flags: {migStrategy: mixed}\n", "flags: {migStrategy: single}\n"
SEVEN = ["1g.5gb"] * 7


def test_with_strategy_none_a_cut_gpu_is_withheld_and_the_others_are_not() -> None:
    layout = laid_out("", gpu(0), gpu(1, "NVIDIA A100-SXM4-40GB", *SEVEN), empty(2))

    assert offered(layout) == {"nvidia.com/gpu": ["GPU-0"]}
    assert set(reasons(layout)) == {f"MIG-1-{n}" for n in range(7)} | {"GPU-2"}
    assert "flags.migStrategy is none" in reasons(layout)["MIG-1-0"]


def test_strategy_single_without_mig_gives_gpus() -> None:
    assert offered(laid_out(SINGLE, gpu(0), gpu(1))) == {"nvidia.com/gpu": ["GPU-0", "GPU-1"]}


@pytest.mark.parametrize(
    ("gpus", "why"),
    [
        ((gpu(0), gpu(1, "A", *SEVEN)), "GPU 0 is not in MIG mode while others are"),
        ((gpu(0, "A", *SEVEN), empty(1)), "GPU 1 is in MIG mode without a MIG device"),
        ((gpu(0, "A", "3g.20gb", "2g.10gb"),), "profiles 2g.10gb, 3g.20gb"),
    ],
)
def test_strategy_single_offers_nothing_of_a_mix(gpus: tuple[Gpu, ...], why: str) -> None:
    layout = laid_out(SINGLE, *gpus)

    assert offered(layout) == {}
    assert all(why in reason for reason in reasons(layout).values())


def test_patterns_name_devices_and_the_first_that_fits_counts() -> None:
    text = MIXED + (
        "resources:\n"
        "  gpus: [{pattern: '*T4*', name: t4}, {pattern: '*', name: nvidia.com/other}]\n"
        "  migs: [{pattern: '1g.*', name: small}]\n"
    )

    layout = laid_out(text, gpu(0, "Tesla T4"), gpu(1), gpu(2, "A", "1g.5gb", "2g.10gb"))

    assert offered(layout) == {
        "nvidia.com/t4": ["GPU-0"],
        "nvidia.com/other": ["GPU-1"],
        "nvidia.com/small": ["MIG-2-0"],
        "nvidia.com/mig-2g.10gb": ["MIG-2-1"],
    }


def sharing(devices: str, rename: bool = False, kind: str = "timeSlicing") -> str:
    return (
        f"sharing: {{{kind}: {{renameByDefault: {str(rename).lower()}, resources: "
        f"[{{name: gpu, replicas: 2, devices: {devices}}}]}}}}\n"
    )


@pytest.mark.parametrize("devices", ["1", "[0]", "[GPU-0]"])
def test_a_part_of_the_devices_may_be_replicated(devices: str) -> None:
    plain = laid_out(sharing(devices), gpu(0), gpu(1))
    renamed = laid_out(sharing(devices, rename=True), gpu(0), gpu(1))

    assert offered(plain) == {"nvidia.com/gpu": ["GPU-0::0", "GPU-0::1", "GPU-1"]}
    assert offered(renamed) == {
        "nvidia.com/gpu": ["GPU-1"],
        "nvidia.com/gpu.shared": ["GPU-0::0", "GPU-0::1"],
    }
    assert renamed.resources[1].is_renamed and not plain.resources[0].is_renamed


def test_an_entry_for_what_is_not_here_is_told_and_no_error() -> None:
    text = "sharing: {timeSlicing: {resources: [{name: mig-1g.5gb, replicas: 2}]}}\n"

    layout = laid_out(text, gpu(0))

    assert layout.unmatched == ("$.sharing.timeSlicing.resources[0]",)
    assert offered(layout) == {"nvidia.com/gpu": ["GPU-0"]}


def test_replicas_under_mps_divide_the_memory() -> None:
    layout = laid_out(sharing("all", kind="mps"), gpu(0))

    (shared,) = layout.gpus
    assert (shared.family, shared.replicas, shared.memory_unit_bytes) == (Family.MPS, 2, 20 * GIB)
    assert layout.families() == ()  # not in units
    assert [each.gpu.uuid for each in layout.served_by_mps()] == ["GPU-0"]


def test_mps_does_not_divide_a_mig_device() -> None:
    layout = laid_out(SINGLE + sharing("all", kind="mps"), gpu(0, "A", *SEVEN))

    assert offered(layout) == {}
    assert all("which sharing.mps cannot divide" in why for why in reasons(layout).values())


def fractional(*entries: str) -> str:
    return "sharing: {fractional: [" + ", ".join(entries) + "]}\n"


def shared(layout: Layout) -> dict[str, str]:
    return {each.gpu.uuid: each.family.name for each in layout.gpus}


def test_entries_select_by_what_a_gpu_is_and_the_first_that_fits_has_it() -> None:
    text = fractional(
        "{family: mps, match: {product: '*T4*'}}",
        "{family: vgpu, match: {minMemory: 60Gi}}",
        "{family: mps, match: {mig: false, maxMemory: 60Gi}}",
        "{family: vgpu, match: {mig: 3g.20gb}}",
    )
    large = Gpu(2, "GPU-2", "NVIDIA H100", 80 * GIB)

    layout = laid_out(
        MIXED + text, gpu(0, "Tesla T4"), gpu(1), large, gpu(3, "A", "3g.20gb", "2g.10gb")
    )

    assert shared(layout) == {"GPU-0": "MPS", "GPU-1": "MPS", "GPU-2": "VGPU", "MIG-3-0": "VGPU"}
    assert offered(layout) == {"nvidia.com/mig-2g.10gb": ["MIG-3-1"]}
    assert layout.unmatched == ()


def test_an_entry_that_selects_nothing_is_told() -> None:
    layout = laid_out(fractional("{family: vgpu, match: {product: '*H100*'}}"), gpu(0))

    assert layout.unmatched == ("$.sharing.fractional[0]",)
    assert offered(layout) == {"nvidia.com/gpu": ["GPU-0"]}


@pytest.mark.parametrize(
    ("device", "found"),
    [
        ("0", {"MIG-0-0", "MIG-0-1"}),
        ("'0:1'", {"MIG-0-1"}),
        ("0:1", {"MIG-0-1"}),
        ("GPU-0", {"MIG-0-0", "MIG-0-1"}),
        ("MIG-0-0", {"MIG-0-0"}),
    ],
)
def test_an_entry_names_mig_devices_or_the_gpu_they_are_of(device: str, found: set[str]) -> None:
    text = fractional(f"{{family: vgpu, devices: [{device}]}}")

    assert set(shared(laid_out(text, gpu(0, "A", "2g.10gb", "2g.10gb")))) == found


def test_a_mig_device_is_not_put_under_mps() -> None:
    layout = laid_out(fractional("{family: mps}"), gpu(0), gpu(1, "A", "2g.10gb"))

    assert shared(layout) == {"GPU-0": "MPS"}
    assert "cannot put under MPS" in reasons(layout)["MIG-1-0"]


FRACTIONS = "sharing: {fractional: [{family: FAMILY}]}\n"
REPLICAS = "sharing: {KIND: {resources: [{name: nvidia.com/gpu, replicas: 3}]}}\n"


def unsized(index: int, *profiles: str) -> Gpu:
    known = gpu(index, "NVIDIA GB10", *profiles)
    parts = tuple(replace(part, memory_bytes=0) for part in known.mig_devices)
    return replace(known, memory_bytes=0, mig_devices=parts)


@pytest.mark.parametrize(
    ("config", "ids"),
    [
        ("", ["GPU-0"]),
        (REPLICAS.replace("KIND", "timeSlicing"), [f"GPU-0::{n}" for n in range(3)]),
        ("sharing: {fractional: [{family: vgpu, devices: [1]}]}\n", ["GPU-0"]),
        ("sharing: {fractional: [{family: vgpu, match: {maxMemory: 200Gi}}]}\n", ["GPU-0"]),
        ("sharing: {fractional: [{family: vgpu, match: {minMemory: 1Mi}}]}\n", ["GPU-0"]),
    ],
)
def test_a_gpu_whose_memory_is_unknown_is_given_whole_and_as_replicas(
    config: str, ids: list[str]
) -> None:
    layout = laid_out(config, unsized(0), gpu(1))

    assert [i for i in offered(layout)["nvidia.com/gpu"] if i.startswith("GPU-0")] == ids
    assert reasons(layout) == {}


@pytest.mark.parametrize(
    ("config", "what"),
    [
        (FRACTIONS.replace("FAMILY", "vgpu"), "sharing.fractional[0]"),
        (FRACTIONS.replace("FAMILY", "mps"), "sharing.fractional[0]"),
        (REPLICAS.replace("KIND", "mps"), "sharing.mps"),
    ],
)
def test_the_memory_of_a_gpu_is_not_divided_where_it_is_unknown(config: str, what: str) -> None:
    layout = laid_out(config, unsized(0), gpu(1))

    assert [shared.gpu.uuid for shared in layout.gpus] == ["GPU-1"]
    assert reasons(layout) == {
        "GPU-0": f"NVML does not tell how much memory it has, so {what} cannot divide that; give "
        "it whole, or as replicas of sharing.timeSlicing"
    }


def test_mig_devices_whose_memory_is_unknown_are_given_whole() -> None:
    cut = unsized(0, "1g.5gb")

    assert offered(laid_out(MIXED, cut)) == {"nvidia.com/mig-1g.5gb": ["MIG-0-0"]}
    assert set(reasons(laid_out(FRACTIONS.replace("FAMILY", "vgpu"), cut))) == {"MIG-0-0"}
