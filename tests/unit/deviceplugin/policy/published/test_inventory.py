"""What is published of a node's GPUs and resources, and how large it is."""

from dataclasses import replace

from deviceplugin.config.loading import parse_config
from deviceplugin.model.allocations import Allocation, AllocationBook, Owner
from deviceplugin.model.concurrency import Concurrency
from deviceplugin.model.fractional import LoneHalves, Placement
from deviceplugin.model.gpus import Gpu, MigPart
from deviceplugin.model.held_devices import HeldDevice
from deviceplugin.pages.published import (
    MOST_BYTES,
    PublishedGpu,
    PublishedResource,
    PublishedSharing,
    decode,
)
from deviceplugin.policy.devices.draining import in_force
from deviceplugin.policy.devices.layout import Layout, SharedGpu, lay_out
from deviceplugin.policy.devices.mps_replicas import replica_allocation
from deviceplugin.policy.published.inventory import NodeMoment, published_node
from deviceplugin.policy.published.size import fitted_value
from deviceplugin.policy.published.slices import Holdings
from deviceplugin.scheduler.search.node_view import view_of
from libvgpu.limits import ComputeMode, Family
from support.node.units import GIB, holding

MAIN = Owner("team", "pod", "main")


def gpu(number: int, **more: object) -> Gpu:
    return replace(Gpu(number, f"GPU-{number}", "H100", 16 * GIB, compute_major=9), **more)  # type: ignore[arg-type]


def shared(of: Gpu, **more: object) -> SharedGpu:
    return replace(SharedGpu(of, Family.VGPU, GIB, ComputeMode.STRICT), **more)  # type: ignore[arg-type]


def pair(name: str, uuid: str, core: int = 30, memory: int = 4) -> Allocation:
    return holding(name, range(core), range(memory), uuid, owner=MAIN)


def holdings(*allocations: Allocation) -> Holdings:
    book = AllocationBook.of(allocations)
    return Holdings(tuple(book.allocations.values()), book.shared_units())


def test_a_gpu_is_published_with_how_it_is_shared() -> None:
    one = gpu(0, closeness={"GPU-1": 118, "GPU-9": 20})
    layout = Layout(
        "nvidia.com",
        (
            shared(one, placement=Placement.SPREAD, lone_halves=LoneHalves.FORBID),
            shared(gpu(1), concurrency=Concurrency.MPS),
            shared(gpu(2, compute_major=6), family=Family.MPS),
        ),
    )

    first, second, third = published_node(NodeMoment(layout)).gpus

    assert first == PublishedGpu(
        0,
        "GPU-0",
        "H100",
        16 * GIB,
        PublishedSharing("vgpu", GIB, 16, "spread", lone_halves=False),
        closeness={"GPU-1": 118},
    )
    assert second.sharing == PublishedSharing("vgpu", GIB, 16, most_containers=48)
    assert third.sharing == PublishedSharing("mps", GIB, 16, most_containers=16)


def test_a_mig_device_is_as_unhealthy_as_its_gpu_and_says_why() -> None:
    part = gpu(0, uuid="MIG-1", mig=MigPart("GPU-0", 1, "1g.10gb", 7, 0))
    layout = Layout("nvidia.com", (shared(part), shared(gpu(1)), shared(gpu(2))))

    moment = NodeMoment(layout, unhealthy={"GPU-0": "XID 79", "GPU-2": "lost"})
    first, second, third = published_node(moment).gpus

    assert (first.index, first.mig_profile, first.unhealthy) == (0, "1g.10gb", "XID 79")
    assert (second.unhealthy, third.unhealthy) == ("", "lost")


def test_what_drains_says_so_and_its_slices_stay() -> None:
    wanted = Layout("nvidia.com", (shared(gpu(0), family=Family.MPS),))
    book = AllocationBook.of([pair("p", "GPU-0")])
    layout = in_force(wanted, [gpu(0)], book)

    node = published_node(NodeMoment(layout, holdings(pair("p", "GPU-0"))))

    assert node.gpus[0].sharing == PublishedSharing("vgpu", GIB, 16, drains=True)
    assert [each.pod for each in node.slices] == [("team", "pod")]
    assert view_of("n", node).gpus[0].problem


def of_config(text: str, *gpus: Gpu) -> Layout:
    return lay_out(parse_config(f"version: v1\n{text}\n"), gpus)


def test_whole_devices_are_counted_with_who_has_them() -> None:
    layout = of_config("", gpu(0), gpu(1), gpu(2, name="A100"), gpu(3))
    held = {
        ("nvidia.com/gpu", "GPU-0"): HeldDevice("nvidia.com/gpu", "GPU-0", MAIN),
        ("nvidia.com/gpu", "GPU-1"): HeldDevice("nvidia.com/gpu", "GPU-1"),
    }

    (found,) = published_node(NodeMoment(layout, held=held, unhealthy={"GPU-3": "lost"})).resources

    # GPU 3 is offered to nobody now, and it does not count, as in the kubelet's sum.
    assert found == PublishedResource(
        "nvidia.com/gpu", 3, 2, (("", ""), ("team", "pod")), 0, ("A100", "H100")
    )


def test_a_held_device_counts_although_it_is_unhealthy_or_not_offered_any_more() -> None:
    layout = of_config("sharing: {fractional: [{family: vgpu, devices: [1]}]}", gpu(0), gpu(1))
    held = {
        (name, uuid): HeldDevice(name, uuid, MAIN)
        for name, uuid in (("nvidia.com/gpu", "GPU-0"), ("nvidia.com/gpu.shared", "GPU-1::3"))
    }

    moment = NodeMoment(layout, held=held, unhealthy={"GPU-0": "lost"})

    assert [(r.name, r.total, r.held) for r in published_node(moment).resources] == [
        ("nvidia.com/gpu", 1, 1),
        ("nvidia.com/gpu.shared", 1, 1),
    ]


TIME_SLICING = (
    "sharing: {timeSlicing: {failRequestsGreaterThanOne: true, renameByDefault: true, resources: "
    "[{name: nvidia.com/gpu, replicas: 4, devices: [0]}]}}"
)


def test_replicas_say_how_many_a_container_may_have() -> None:
    layout = of_config(TIME_SLICING, gpu(0), gpu(1))

    whole, replicas = published_node(NodeMoment(layout)).resources

    assert (whole.name, whole.total, whole.most) == ("nvidia.com/gpu", 1, 0)
    assert (replicas.name, replicas.total, replicas.most) == ("nvidia.com/gpu.shared", 4, 1)


def test_a_replica_under_mps_is_held_by_its_slice_also_before_the_kubelet_told() -> None:
    text = "sharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}"
    layout = of_config(text, gpu(0))
    (resource,) = layout.resources
    slice_ = replica_allocation(layout, resource, ["GPU-0::2"], 1.0, "s")
    told = {("nvidia.com/gpu", "GPU-0::2"): HeldDevice("nvidia.com/gpu", "GPU-0::2")}

    for held in ({}, told):
        node = published_node(NodeMoment(layout, holdings(replace(slice_, owner=MAIN)), held))
        assert node.slices == ()
        assert node.gpus == ()
        assert node.resources == (
            PublishedResource("nvidia.com/gpu", 4, 1, (("team", "pod"),), 1, ("H100",)),
        )


def full_node(slices: int, **more: object) -> NodeMoment:
    """16 GPUs with names as long as they are in clusters."""
    gpus = [f"GPU-{n:08x}-1111-2222-3333-444444444444" for n in range(16)]
    closeness = dict.fromkeys(gpus, 118)
    layout = Layout(
        "nvidia.com",
        tuple(
            shared(gpu(n, uuid=uuid, name="NVIDIA H100 80GB HBM3", closeness=closeness), **more)
            for n, uuid in enumerate(gpus)
        ),
    )
    book = AllocationBook()
    for n in range(slices):
        uuid, first = gpus[n % 16], n // 16
        book.put(
            holding(
                f"{n:012x}",
                range(first, first + 1),
                range(first, first + 1),
                uuid,
                owner=Owner("a-namespace-of-a-team", f"a-deployment-7c9d8b6f5d-{n:05x}", "main"),
            )
        )
    return NodeMoment(layout, Holdings(tuple(book.allocations.values())))


def test_a_node_with_128_slices_fits_by_far() -> None:
    fitted = fitted_value(published_node(full_node(128)))

    assert fitted.left_out == ""
    size = len(fitted.value.encode())
    assert 30 << 10 < size < 40 << 10  # as docs/operations.md says


def test_too_many_slices_are_published_without_names_and_then_as_sums() -> None:
    node = published_node(full_node(1600, concurrency=Concurrency.MPS))
    free = [(r.core, r.memory, r.containers_left) for r in view_of("n", node).gpus]

    fitted = fitted_value(node)
    few = fitted_value(node, 16 << 10)

    assert fitted.left_out == "names of pods and how close GPUs lie"
    assert few.left_out.endswith("and single slices")
    for each, most_bytes in ((fitted, MOST_BYTES), (few, 16 << 10)):
        assert len(each.value.encode()) <= most_bytes
        read = decode(each.value)
        assert read is not None
        assert [(r.core, r.memory, r.containers_left) for r in view_of("n", read).gpus] == free


def test_sums_leave_mps_as_many_containers_as_there_were() -> None:
    node = published_node(full_node(160, concurrency=Concurrency.MPS))
    few = decode(fitted_value(node, 0).value)

    assert few is not None
    assert [r.containers_left for r in view_of("n", node).gpus] == [38] * 16
    assert [r.containers_left for r in view_of("n", few).gpus] == [38] * 16
