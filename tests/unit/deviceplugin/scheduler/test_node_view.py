"""What is free on a node, by what its agent published and what is on its way."""

from deviceplugin.pages.published import (
    FORM,
    PublishedGpu,
    PublishedNode,
    PublishedResource,
    PublishedSharing,
    PublishedSlice,
)
from deviceplugin.scheduler.answers.session_room import less
from deviceplugin.scheduler.search.fractions import laid_out
from deviceplugin.scheduler.search.node_view import DeviceRoom, Reservation, Taken, view_of

SHARING = PublishedSharing("mps", 1 << 30, 80, most_containers=2)


def node(*slices: PublishedSlice, sharing: PublishedSharing = SHARING) -> PublishedNode:
    return PublishedNode(
        FORM,
        "nvidia.com",
        (
            PublishedGpu(0, "GPU-a", "H100", 80 << 30, sharing),
            PublishedGpu(1, "GPU-b", "H100", 80 << 30, sharing, unhealthy="XID 79"),
        ),
        slices,
        (PublishedResource("nvidia.com/gpu", 4, 1, (("team", "other"),), most=1),),
    )


def test_slices_and_reservations_are_not_free() -> None:
    view = view_of(
        "n1",
        node(PublishedSlice("1f", {"GPU-a": (30, 8)})),
        [Reservation({"GPU-a": Taken(20, 2, 1)}, {"nvidia.com/gpu": 2})],
    )
    room = view.gpus[0]
    assert (room.core, room.memory, room.containers_left, room.is_empty) == (50, 70, 0, False)
    assert view.devices["nvidia.com/gpu"] == DeviceRoom(1, 4, 1)


def test_more_than_there_is_leaves_nothing() -> None:
    reservation = Reservation({"GPU-a": Taken(200, 90, 3)}, {"nvidia.com/gpu": 9})
    view = view_of("n1", node(), [reservation])
    room = view.gpus[0]
    assert (room.core, room.memory, room.containers_left) == (0, 0, 0)
    assert view.devices["nvidia.com/gpu"].free == 0


def test_a_sick_gpu_and_one_that_drains_say_why() -> None:
    assert view_of("n1", node()).gpus[1].problem == "XID 79"
    drains = PublishedSharing("vgpu", 1 << 30, 80, drains=True)
    assert "slices of the sharing" in view_of("n1", node(sharing=drains)).gpus[0].problem


def test_a_family_of_a_later_release_is_left_out() -> None:
    assert view_of("n1", node(sharing=PublishedSharing("new", 1 << 30, 80))).gpus == ()


def test_what_is_kept_with_a_view_is_of_no_other() -> None:
    view = view_of("n1", node())
    assert laid_out(view)[0].core == 100
    fuller = less(view, Reservation({"GPU-a": Taken(30, 8, 1)}))
    assert laid_out(fuller)[0].core == 70
