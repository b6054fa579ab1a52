"""What pods wish, and what their namespaces may hold."""

import pytest

from deviceplugin.model.fractional import Placement
from deviceplugin.model.pod_requests import PodRequest
from deviceplugin.model.quotas import Quota
from deviceplugin.scheduler.cluster.quotas import Held, added, has_quota, refusal, usage_of
from deviceplugin.scheduler.search.node_view import GpuRoom, Reservation, Taken
from deviceplugin.scheduler.search.wishes import NO_WISHES, Wishes, wishes_of
from libvgpu.errors import VgpuError
from libvgpu.limits import Family

GIB = 1 << 30


def wished(**annotations: str) -> Wishes:
    named = {f"nvidia.com/vgpu.{k.replace('_', '-')}": v for k, v in annotations.items()}
    return wishes_of(PodRequest("u", "ns", "p", (), annotations=named), "nvidia.com")


def test_annotations_are_read() -> None:
    assert wished() == NO_WISHES == wished(gpus="not one of these")
    assert wished(
        use_gpu_models="H100, A100*80GB", avoid_gpu_models="mig", use_gpus="GPU-1,MIG-2",
        avoid_gpus="GPU-3", node_policy="spread", gpu_policy="binpack",
    ) == Wishes(
        ("a100*80gb", "h100"), ("mig",), frozenset({"GPU-1", "MIG-2"}), frozenset({"GPU-3"}),
        Placement.SPREAD, Placement.BINPACK,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("annotations", "says"),
    [
        ({"node_policy": "tight"}, "is 'tight', allowed are binpack and spread"),
        ({"gpu_policy": ""}, "vgpu.gpu-policy is ''"),
        ({"use_gpu_models": ""}, "names '', allowed are product names"),
        ({"avoid_gpu_models": "a,,b"}, "names ''"),
        ({"use_gpus": "0"}, "names '0', allowed are UUIDs"),
        ({"avoid_gpus": "GPU-1 GPU-2"}, "names 'GPU-1 GPU-2'"),
        ({"use_gpus": ",".join(["GPU-1"] * 65)}, "is too long; allowed are 64 names"),
        ({"use_gpu_models": "x" * 5000}, "is too long"),
    ],
)
def test_what_is_not_allowed_is_refused(annotations: dict[str, str], says: str) -> None:
    with pytest.raises(VgpuError, match=r"annotation nvidia\.com/vgpu") as error:
        wished(**annotations)
    assert says in error.value.message


@pytest.mark.parametrize(
    ("pattern", "product", "fits"),
    [
        ("h100", "NVIDIA H100 80GB HBM3", True),
        ("a100", "NVIDIA H100 80GB HBM3", False),
        ("nvidia*80gb*", "NVIDIA H100 80GB HBM3", True),
        ("h100*", "NVIDIA H100 80GB HBM3", False),  # with * it is all of the name
        ("*h100*", "NVIDIA H100 80GB HBM3", True),
        ("h[1]00", "NVIDIA H100 80GB HBM3", False),
        ("*h?00*", "NVIDIA H100 80GB HBM3", False),
    ],
)
def test_patterns(pattern: str, product: str, fits: bool) -> None:
    assert Wishes(use_models=(pattern,)).allow(product, "GPU-1") is fits
    assert Wishes(avoid_models=(pattern,)).allow(product, "GPU-1") is not fits


def test_uuids() -> None:
    assert Wishes(use_gpus=frozenset({"GPU-1"})).allow("p", "GPU-1")
    assert not Wishes(use_gpus=frozenset({"GPU-1"})).allow("p", "GPU-2")
    assert not Wishes(avoid_gpus=frozenset({"GPU-2"})).allow("p", "GPU-2")


QUOTAS = (
    Quota("team-a", (Family.VGPU,), 400, 160 * GIB),
    Quota("team-*", tuple(Family), 100, None),
    Quota("none", (Family.VGPU,), None, 0),
)


@pytest.mark.parametrize(
    ("namespace", "used", "asked", "says"),
    [
        ("team-a", Held(370, 0), Held(30, 8 * GIB), None),
        ("team-a", Held(371, 0), Held(30, 8 * GIB),
         "quota of namespace team-a in family vgpu: 30 core asked, 371 used of 400"),
        ("team-a", Held(0, 150 * GIB), Held(30, 11 * GIB),
         ("quota of namespace team-a in family vgpu: 11 GiB of memory asked, 150 GiB used of "
          "160 GiB")),
        ("team-b", Held(90, 900 * GIB), Held(10, 900 * GIB), None),
        ("team-b", Held(90, 0), Held(11, 0),
         "quota of namespace team-b in family vgpu: 11 core asked, 90 used of 100"),
        # More is used than allowed: who adds nothing to it is not refused for it.
        ("team-b", Held(120, 0), Held(0, GIB), None),
        ("none", Held(), Held(10, GIB),
         "quota of namespace none in family vgpu: 1 GiB of memory asked, 0 B used of 0 B"),
        ("other", Held(10**6, 1 << 50), Held(800, 1 << 40), None),
    ],
)  # fmt: skip
def test_a_quota_is_held(namespace: str, used: Held, asked: Held, says: str | None) -> None:
    vgpu = Family.VGPU
    assert refusal(QUOTAS, namespace, {vgpu: used}, {vgpu: asked}) == says
    # The other family has a ceiling of its own.
    if namespace != "team-b":
        assert refusal(QUOTAS, namespace, {Family.MPS: used}, {vgpu: Held()}) is None


def test_for_whom_there_are_quotas() -> None:
    assert has_quota(QUOTAS, "team-x")
    assert not has_quota(QUOTAS, "other")


def test_usage_is_of_bytes_and_of_each_family() -> None:
    gpus = [
        GpuRoom(0, "a", "p", Family.VGPU, 0, 0, 80, GIB),
        GpuRoom(1, "b", "p", Family.MPS, 0, 0, 160, GIB // 2),
        GpuRoom(2, "c", "p", Family.VGPU, 0, 0, 80, GIB),
    ]
    taken = Reservation({"a": Taken(30, 8, 1), "b": Taken(20, 10, 1), "c": Taken(5, 1, 1)})
    usage = usage_of(gpus, taken)
    assert usage == {Family.VGPU: Held(35, 9 * GIB), Family.MPS: Held(20, 5 * GIB)}
    assert added([usage, {Family.MPS: Held(1, 1)}]) == {
        Family.VGPU: Held(35, 9 * GIB),
        Family.MPS: Held(21, 5 * GIB + 1),
    }
