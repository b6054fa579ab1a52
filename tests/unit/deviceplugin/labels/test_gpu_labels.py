"""Labels as GPU Feature Discovery writes them, for machines of one or several GPUs."""

from dataclasses import replace

import pytest

from deviceplugin.labels.gpu_labels import family_of, gpu_labels
from deviceplugin.labels.mig_labels import single_problem
from deviceplugin.labels.offered import (
    FreeSlice,
    Machine,
    Offered,
    SharedResource,
    SharingStrategy,
    VirtualGpu,
)
from deviceplugin.model.gpus import Gpu, MigPart

MIB = 1 << 20
MACHINE = Machine("Google Compute Engine", "compute", ())

T4 = Gpu(
    0,
    "GPU-t4",
    "Tesla T4",
    15360 * MIB,
    driver="550.54.15",
    cuda_version=(12, 4),
    compute_major=7,
    compute_minor=5,
)
A100 = Gpu(
    0, "GPU-a100", "NVIDIA A100-SXM4-40GB", 40960 * MIB,
    driver="535.104", cuda_version=(12, 2), compute_major=8, compute_minor=0, is_mig_capable=True,
)  # fmt: skip
H100 = Gpu(
    0,
    "GPU-h100",
    "NVIDIA H100 80GB HBM3",
    81559 * MIB,
    driver="580.126.16",
    cuda_version=(13, 0),
    compute_major=9,
    compute_minor=0,
    is_mig_capable=True,
)

#: MiB, multiprocessors, slices of GPU and compute, copy engines, decoders, JPEG, OFA, by profile.
PROFILES = {
    "1g.5gb": (4864, 14, 1, 1, 1, 0, 0, 0),
    "1g.5gb+me": (4864, 14, 1, 1, 1, 1, 1, 1),
    "2g.10gb": (9856, 28, 2, 2, 2, 1, 0, 0),
    "3g.20gb": (19968, 42, 3, 3, 3, 2, 0, 0),
}


def cut(gpu: Gpu, *profiles: str) -> Gpu:
    """Returns a GPU in MIG mode that is cut into these."""
    devices = []
    for number, profile in enumerate(profiles):
        mib, processors, gi, ci, copy, decoders, jpeg, ofa = PROFILES[profile]
        part = MigPart(
            gpu.uuid, number, profile, number + 1, 0, processors, gi, ci, copy, decoders, 0, jpeg,
            ofa,
        )  # fmt: skip
        uuid, name = f"MIG-{gpu.uuid}-{number}", f"{gpu.name} MIG {profile}"
        devices.append(Gpu(gpu.index, uuid, name, mib * MIB, mig=part))
    return replace(gpu, is_mig_enabled=True, mig_devices=tuple(devices))


def several(gpu: Gpu, count: int) -> tuple[Gpu, ...]:
    return tuple(replace(gpu, index=n, uuid=f"{gpu.uuid}-{n}") for n in range(count))


def whole(
    *gpus: Gpu,
    replicas: int = 1,
    strategy: SharingStrategy = SharingStrategy.NONE,
    renamed: bool = False,
) -> SharedResource:
    return SharedResource(frozenset(g.uuid for g in gpus), replicas, strategy, renamed)


def of_resource(labels: dict[str, str], name: str) -> dict[str, str]:
    start = f"nvidia.com/{name}."
    return {key.removeprefix(start): v for key, v in labels.items() if key.startswith(start)}


def test_a_t4_that_nobody_shares() -> None:
    labels = gpu_labels([T4], Offered(resources=(whole(T4),)), MACHINE)

    assert labels == {
        "nvidia.com/gpu.product": "Tesla-T4",
        "nvidia.com/gpu.count": "1",
        "nvidia.com/gpu.replicas": "1",
        "nvidia.com/gpu.sharing-strategy": "none",
        "nvidia.com/gpu.memory": "15360",
        "nvidia.com/gpu.family": "turing",
        "nvidia.com/gpu.compute.major": "7",
        "nvidia.com/gpu.compute.minor": "5",
        "nvidia.com/gpu.machine": "Google-Compute-Engine",
        "nvidia.com/gpu.mode": "compute",
        "nvidia.com/mig.capable": "false",
        "nvidia.com/mps.capable": "false",
        "nvidia.com/vgpu.present": "false",
        "nvidia.com/cuda.driver-version.major": "550",
        "nvidia.com/cuda.driver-version.minor": "54",
        "nvidia.com/cuda.driver-version.revision": "15",
        "nvidia.com/cuda.driver-version.full": "550.54.15",
        "nvidia.com/cuda.driver.major": "550",
        "nvidia.com/cuda.driver.minor": "54",
        "nvidia.com/cuda.driver.rev": "15",
        "nvidia.com/cuda.runtime-version.major": "12",
        "nvidia.com/cuda.runtime-version.minor": "4",
        "nvidia.com/cuda.runtime-version.full": "12.4",
        "nvidia.com/cuda.runtime.major": "12",
        "nvidia.com/cuda.runtime.minor": "4",
    }


def test_a_node_without_gpus_says_nothing() -> None:
    assert gpu_labels([], Offered(mig_strategy="single"), MACHINE) == {}


def test_a_driver_version_of_two_numbers_has_an_empty_revision() -> None:
    labels = gpu_labels([A100], Offered(), MACHINE)

    assert labels["nvidia.com/cuda.driver-version.full"] == "535.104"
    assert labels["nvidia.com/cuda.driver-version.revision"] == ""
    assert labels["nvidia.com/cuda.driver.rev"] == ""


def test_what_the_driver_does_not_tell_has_no_label() -> None:
    silent = Gpu(0, "GPU-x", "Some GPU", 0, compute_major=7)  # volta or turing: nobody knows

    labels = gpu_labels([silent], Offered(resources=(whole(silent),)), Machine())

    assert sorted(labels) == [
        "nvidia.com/gpu.count",
        "nvidia.com/gpu.machine",
        "nvidia.com/gpu.mode",
        "nvidia.com/gpu.product",
        "nvidia.com/gpu.replicas",
        "nvidia.com/gpu.sharing-strategy",
        "nvidia.com/mig.capable",
        "nvidia.com/mps.capable",
    ]


# ---- MIG --------------------------------------------------------------------------------------

SEVEN = cut(A100, *["1g.5gb"] * 7)
OF_1G = {
    "memory": "4864",
    "multiprocessors": "14",
    "slices.gi": "1",
    "slices.ci": "1",
    "engines.copy": "1",
    "engines.decoder": "0",
    "engines.encoder": "0",
    "engines.jpeg": "0",
    "engines.ofa": "0",
}


def devices_of(gpu: Gpu, profile: str) -> frozenset[str]:
    return frozenset(d.uuid for d in gpu.mig_devices if d.mig and d.mig.profile == profile)


def test_strategy_none_offers_nothing_of_a_gpu_in_mig_mode() -> None:
    labels = gpu_labels([SEVEN], Offered(), MACHINE)

    whole = of_resource(labels, "gpu")
    assert (whole["product"], whole["count"], whole["replicas"]) == (
        "NVIDIA-A100-SXM4-40GB",
        "1",
        "0",
    )
    assert (whole["sharing-strategy"], whole["memory"]) == ("none", "40960")
    assert not [key for key in labels if "mig-" in key or key.endswith("mig.strategy")]


def test_single_makes_equal_mig_devices_the_gpus() -> None:
    gpus = [SEVEN, replace(cut(A100, *["1g.5gb"] * 7), index=1, uuid="GPU-a100")]
    offered = Offered(
        resources=(SharedResource(devices_of(SEVEN, "1g.5gb")),), mig_strategy="single"
    )

    labels = gpu_labels(gpus, offered, MACHINE)

    assert of_resource(labels, "gpu") | {"machine": "", "mode": ""} == {
        "product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb",
        "count": "14",
        "replicas": "1",
        "sharing-strategy": "none",
        "family": "ampere",
        "compute.major": "8",
        "compute.minor": "0",
        "machine": "",
        "mode": "",
        **OF_1G,
    }
    assert labels["nvidia.com/mig.strategy"] == "single"
    assert labels["nvidia.com/mig.capable"] == "true"


def test_single_without_a_gpu_in_mig_mode_is_as_none() -> None:
    offered = Offered(resources=(whole(A100),), mig_strategy="single")

    labels = gpu_labels([A100], offered, MACHINE)

    assert labels == gpu_labels([A100], replace(offered, mig_strategy="none"), MACHINE) | {
        "nvidia.com/mig.strategy": "single"
    }
    assert single_problem([A100], offered) is None


@pytest.mark.parametrize(
    ("gpus", "why"),
    [
        ([cut(A100)], "no MIG device"),
        ([cut(A100, "3g.20gb", "2g.10gb", "1g.5gb")], "more than one profile"),
        ([SEVEN, replace(A100, index=1, uuid="GPU-b")], "some are not"),
        ([SEVEN, replace(cut(A100), index=1, uuid="GPU-b")], "no MIG device"),
    ],
)
def test_single_calls_any_other_cut_invalid(gpus: list[Gpu], why: str) -> None:
    labels = of_resource(gpu_labels(gpus, Offered(mig_strategy="single"), MACHINE), "gpu")

    assert labels["product"] == "NVIDIA-A100-SXM4-40GB-MIG-INVALID"
    assert (labels["count"], labels["replicas"], labels["memory"]) == ("0", "0", "0")
    assert "multiprocessors" not in labels
    assert why in (single_problem(gpus, Offered()) or "")


def test_single_looks_at_what_is_not_shared_in_fractions() -> None:
    other = replace(A100, index=1, uuid="GPU-b")
    gpu = cut(A100, "3g.20gb", "1g.5gb", "1g.5gb")
    slices = tuple(
        FreeSlice(uuid, "0", "vgpu", SharingStrategy.TIME_SLICING, 100, 0, 1)
        for uuid in ("GPU-b", gpu.mig_devices[0].uuid)
    )
    resources = (SharedResource(devices_of(gpu, "1g.5gb")),)
    offered = Offered(resources=resources, slices=slices, mig_strategy="single")

    labels = of_resource(gpu_labels([gpu, other], offered, MACHINE), "gpu")

    assert single_problem([gpu, other], offered) is None
    assert labels["product"] == "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"
    assert (labels["count"], labels["replicas"]) == ("2", "1")


def test_mixed_tells_of_each_profile() -> None:
    gpu = cut(A100, "3g.20gb", "2g.10gb", "1g.5gb", "1g.5gb+me")
    offered = Offered(
        resources=(
            SharedResource(devices_of(gpu, "3g.20gb")),
            SharedResource(devices_of(gpu, "2g.10gb"), 4, SharingStrategy.TIME_SLICING),
            SharedResource(devices_of(gpu, "1g.5gb")),
            SharedResource(devices_of(gpu, "1g.5gb+me")),
        ),
        mig_strategy="mixed",
    )

    labels = gpu_labels([gpu], offered, MACHINE)

    assert labels["nvidia.com/mig.strategy"] == "mixed"
    assert of_resource(labels, "gpu")["replicas"] == "0"
    assert of_resource(labels, "gpu")["product"] == "NVIDIA-A100-SXM4-40GB"
    one = of_resource(labels, "mig-1g.5gb")
    assert {k: v for k, v in one.items() if not k.startswith("me.")} == {
        "product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb",
        "count": "1",
        "replicas": "1",
        "sharing-strategy": "none",
        **OF_1G,
    }
    media = of_resource(labels, "mig-1g.5gb.me")
    assert media["product"] == "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb.me"
    assert (media["engines.decoder"], media["engines.jpeg"], media["engines.ofa"]) == ("1",) * 3
    two = of_resource(labels, "mig-2g.10gb")
    assert two["product"] == "NVIDIA-A100-SXM4-40GB-MIG-2g.10gb-SHARED"
    assert (two["replicas"], two["sharing-strategy"]) == ("4", "time-slicing")
    assert (two["memory"], two["multiprocessors"], two["slices.gi"]) == ("9856", "28", "2")
    assert of_resource(labels, "mig-3g.20gb")["slices.ci"] == "3"


# ---- the rest ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("major", "minor", "family"),
    [
        (6, 1, "pascal"),
        (7, 0, "volta"),
        (7, 5, "turing"),
        (8, 6, "ampere"),
        (8, 9, "ada-lovelace"),
        (9, 0, "hopper"),
        (10, 0, "blackwell"),
        (12, 0, "blackwell"),
        (99, 0, "undefined"),
    ],
)
def test_families(major: int, minor: int, family: str) -> None:
    assert family_of(major, minor) == family


def test_a_virtual_gpu_tells_of_its_host() -> None:
    machine = Machine(virtual_gpus=(VirtualGpu("460.16", "r460_00"),))

    assert of_resource(gpu_labels([T4], Offered(), machine), "vgpu") == {
        "present": "true",
        "host-driver-version": "460.16",
        "host-driver-branch": "r460_00",
    }
