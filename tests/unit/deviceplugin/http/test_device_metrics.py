"""What metrics say of whole devices, replicas and GPUs of which nothing is offered."""

from deviceplugin.config.loading import parse_config
from deviceplugin.http.device_metrics import device_families
from deviceplugin.http.gpu_metrics import gpu_families
from deviceplugin.model.gpus import Gpu
from deviceplugin.model.held_devices import with_given
from deviceplugin.policy.devices.layout import lay_out

GPUS = (
    Gpu(0, "GPU-0", "T4", 1 << 34),
    Gpu(1, "GPU-1", "T4", 1 << 34),
    Gpu(2, "GPU-2", "A100", 1 << 34, is_mig_enabled=True),
)
TEXT = """\
version: v1
sharing: {timeSlicing: {renameByDefault: true, resources: [{name: gpu, replicas: 5, devices: 1}]}}
"""
LAYOUT = lay_out(parse_config(TEXT), GPUS)


def test_each_resource_counts_what_it_has_and_what_is_held() -> None:
    held = with_given({}, "nvidia.com/gpu.shared", ["GPU-0::0", "GPU-0::3"], 0.0)

    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in device_families(LAYOUT, held)
        for sample in family.samples
    }

    assert found == {
        ("vgpu_resource_devices", "nvidia.com/gpu"): 1,
        ("vgpu_resource_devices", "nvidia.com/gpu.shared"): 5,
        ("vgpu_resource_devices_held", "nvidia.com/gpu"): 0,
        ("vgpu_resource_devices_held", "nvidia.com/gpu.shared"): 2,
        ("vgpu_gpu_withheld", "GPU-2"): 1,
    }


def test_a_whole_gpu_has_its_memory_and_its_health_and_nothing_that_nobody_counts() -> None:
    found = [
        (sample.name, sample.labels["gpu"], sample.labels["family"], sample.value)
        for family in gpu_families(LAYOUT, [], {"GPU-1"})
        for sample in family.samples
    ]

    assert found == [
        ("vgpu_gpu_memory_total_bytes", "GPU-1", "whole", 1 << 34),
        ("vgpu_gpu_memory_total_bytes", "GPU-0", "whole", 1 << 34),
        ("vgpu_gpu_healthy", "GPU-1", "whole", 0),
        ("vgpu_gpu_healthy", "GPU-0", "whole", 1),
    ]
