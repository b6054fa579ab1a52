"""What `chaos` judges by: each breach, given as data, is told, and what is right is not."""

import random
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from benchmarks.chaos import invariants
from benchmarks.chaos.config import BAD, Sharing
from benchmarks.chaos.invariants import Books, Charged, Given, Slice
from benchmarks.chaos.tenants import LIMITS, Tenant
from deviceplugin.config.loading import load_config
from deviceplugin.kubelet.protos import deviceplugin_v1beta1_pb2 as pb
from deviceplugin.testing.pods import ContainerManifest, PodManifest
from deviceplugin.testing.records import AdmittedContainer, AdmittedPod
from libvgpu import region
from libvgpu.errors import ConfigError, RegionBusyError, RegionError
from libvgpu.limits import ContainerLimits, DeviceLimit, Family, on_left_over

GIB = 1 << 30
CORE, MEMORY = "nvidia.com/vgpu-core", "nvidia.com/vgpu-memory"
SIZES = {"GPU-0": 16 * GIB, "GPU-1": 16 * GIB}


def given(name: str, core: str, memory: str, path: str = "") -> Given:
    return Given(name, {CORE: (core,), MEMORY: (memory,)}, (path or f"/{name}",))


def limits(
    uuid: str = "GPU-0", gib: int = 4, core: int = 30, family: Family = Family.VGPU
) -> ContainerLimits:
    return ContainerLimits("a", family, (DeviceLimit(uuid, gib * GIB, core_percent=core),))


def left_over() -> ContainerLimits:
    whole = limits()
    return replace(whole, devices=tuple(map(on_left_over, whole.devices)))


ONE = given("a/c", "GPU-0::c1", "GPU-0::m1")
FIRST = Slice("a/c", 7, limits())


@pytest.mark.parametrize(
    ("breaches", "told"),
    [
        (invariants.split([given("a/c", "GPU-0::c1", "GPU-1::m1")]), "a/c is split"),
        (invariants.split([ONE]), None),
        (
            invariants.given_twice([ONE, given("b/c", "GPU-0::c1", "GPU-0::m2")]),
            "is given to a/c and b/c",
        ),
        (
            invariants.given_twice(
                [ONE, given("b/c", "GPU-0::c2", "GPU-0::m2", path="/a/c")]
            ),
            "b/c and a/c share the files of a slice",
        ),
        (invariants.given_twice([ONE]), None),
        (invariants.sums([limits(core=60), limits(core=41)], SIZES), "slices of 101 %"),
        (invariants.sums([limits(core=100), left_over()], SIZES), None),
        (invariants.sums([limits(gib=9), limits(gib=8)], SIZES), f"slices of {17 * GIB} bytes"),
        (invariants.sums([limits(), limits(family=Family.MPS)], SIZES), "VGPU and MPS slices"),
        (invariants.sums([limits(gib=9), limits("GPU-1", gib=9)], SIZES), None),
        (invariants.changed(FIRST, replace(FIRST, inode=None)), "has lost its slice"),
        (invariants.changed(FIRST, replace(FIRST, inode=8)), "is detached"),
        (invariants.changed(FIRST, replace(FIRST, limits=None)), "limits that cannot be read"),
        (invariants.changed(FIRST, replace(FIRST, limits=limits(gib=5))), "that were"),
        (invariants.changed(FIRST, FIRST), None),
        (invariants.unlike_asked("a", 31, (4 * GIB,), limits()), "asked for 31 core and has 30"),
        (invariants.unlike_asked("a", 30, (3 * GIB,), limits()), f"and has {4 * GIB}"),
        (invariants.unlike_asked("a", 30, (2 * GIB, 4 * GIB), limits()), None),
        (invariants.books_differ(Books({"x": ("u",)}, {}, frozenset("x"))), "not in the agent's"),
        (invariants.books_differ(Books({"x": ("u",)}, {"x": ("u",)})), "not in the run directory"),
        (invariants.books_differ(Books({}, {"x": ("u",)})), "in the agent's book and of no pod"),
        (invariants.books_differ(Books({}, {}, frozenset("x"))), "run directory and of no pod"),
        (
            invariants.books_differ(Books({"x": ("u",)}, {"x": ("v",)}, frozenset("x"))),
            "by the kubelet and",
        ),
        (invariants.books_differ(Books({"x": ("u",)}, {"x": ("u",)}, frozenset("x"))), None),
        (invariants.charged_wrong([Charged("a", 5 << 20, 0, 1)]), "a is charged 5242880 bytes"),
        (invariants.charged_wrong([Charged("a", 0, 5 << 20, 1)]), "has 5242880"),
        (invariants.charged_wrong([Charged("a", 5 << 20, 4 << 20, 1)]), None),
        (invariants.above_limit("a", 4 * GIB + 1, limits()), "holds 4294967297 bytes"),
        (invariants.above_limit("a", 4 * GIB, limits()), None),
        (invariants.withdrawn([ONE], {CORE: ONE.units[CORE]}), "a/c has 1 units that are not"),
        (invariants.withdrawn([ONE], ONE.units), None),
        (invariants.offered_wrong({CORE: 99, MEMORY: 0}, {CORE: 100}), "is offered"),
        (invariants.offered_wrong({CORE: 100, MEMORY: 0}, {CORE: 100}), None),
    ],
)  # fmt: skip
def test_a_breach_is_told_and_nothing_else(breaches: Iterable[str], told: str | None) -> None:
    found = list(breaches)

    assert len(found) == (told is not None), found
    assert told is None or told in found[0]


@pytest.mark.parametrize(
    ("error", "told"), [(RegionBusyError, False), (RegionError, True)], ids=["busy", "damaged"]
)
def test_limits_that_an_attacker_keeps_busy_are_whole(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: type[RegionError], told: bool
) -> None:
    (tmp_path / "limits").touch()
    first = Slice("a", (tmp_path / "limits").stat().st_ino, limits())
    mounts = [pb.Mount(container_path=LIMITS, host_path=str(tmp_path / "limits"))]
    container = AdmittedContainer(
        ContainerManifest("c"), False, answers={CORE: pb.ContainerAllocateResponse(mounts=mounts)}
    )
    manifest = PodManifest("a", (container.manifest,))
    tenant = Tenant(AdmittedPod(manifest, "uid", [container]), 1, first=first)
    monkeypatch.setattr(region, "read_limits", mock.Mock(side_effect=error("now")))

    assert bool(list(invariants.changed(first, tenant.files()))) == told


def test_good_configs_are_taken_and_bad_ones_are_not(tmp_path: Path) -> None:
    chance, sharing, path = random.Random(3), Sharing(), tmp_path / "config.yaml"
    for _ in range(30):
        sharing = sharing.edited(chance)
        path.write_text(sharing.text())
        assert load_config(path)
    for text in BAD:
        path.write_text(text)
        with pytest.raises(ConfigError):
            load_config(path)
