"""A node that an autoscaler could add, judged by what it would have."""

from deviceplugin.scheduler.answers.template_view import template_view
from libvgpu.limits import Family

DOMAIN = "nvidia.com"


def test_gpus_have_equal_parts_of_the_memory() -> None:
    view = template_view(
        "t",
        DOMAIN,
        {"nvidia.com/vgpu-core": "400", "nvidia.com/vgpu-memory": "320", "cpu": "8"},
        {"nvidia.com/gpu.product": "NVIDIA-H100", "nvidia.com/gpu.memory": "81920"},
    )

    assert [(g.core, g.memory, g.memory_units) for g in view.gpus] == [(100, 80, 80)] * 4
    assert {g.product for g in view.gpus} == {"NVIDIA-H100"}
    assert {g.memory_unit_bytes for g in view.gpus} == {1 << 30}
    assert all(g.is_empty and g.family is Family.VGPU and not g.problem for g in view.gpus)
    assert len({g.uuid for g in view.gpus}) == 4
    assert view.devices == {}


def test_whole_devices_are_all_free() -> None:
    view = template_view("t", DOMAIN, {"nvidia.com/gpu": "8", "nvidia.com/mig-1g.10gb": 2}, {})

    assert view.gpus == ()
    assert {name: (room.free, room.total) for name, room in view.devices.items()} == {
        "nvidia.com/gpu": (8, 8),
        "nvidia.com/mig-1g.10gb": (2, 2),
    }


def test_amounts_that_are_none_are_nothing() -> None:
    view = template_view(
        "t",
        DOMAIN,
        {
            "nvidia.com/vgpu-core": "many",
            "nvidia.com/vgpu-memory": "80",
            "nvidia.com/mps-core": "50",
            "nvidia.com/mps-memory": "1",
        },
        {},
    )

    assert view.gpus == ()
    assert (
        len(
            template_view(
                "t", DOMAIN, {"nvidia.com/vgpu-core": "1E"} | {"nvidia.com/vgpu-memory": "1E"}, {}
            ).gpus
        )
        == 1024
    )
