"""What CuPy programs do of a GPU's memory; each step leaves the GPU idle. See run_steps.py."""

from typing import Any

import cupy

#: What the steps have and keep; emptied by the step "freed".
kept: list[Any] = []
ODD_BYTES = (1, 513, 600000, 1048577, 3000001, 20000003)


def settled(*arrays: Any) -> None:
    kept.extend(arrays)
    cupy.cuda.Device().synchronize()


def context() -> None:
    settled(cupy.zeros(1))


def odd_sizes() -> None:
    settled(*(cupy.empty(size, dtype=cupy.uint8) for size in ODD_BYTES))


def kernels() -> None:
    numbers = cupy.arange(1 << 20, dtype=cupy.float32)
    settled(numbers, cupy.sort(numbers * 2 + 1).sum())


def matmul() -> None:
    left = cupy.ones((1024, 1024), dtype=cupy.float32)
    settled(left @ left)


def fft() -> None:
    settled(cupy.fft.fft(cupy.ones(1 << 16, dtype=cupy.complex64)))


def freed() -> None:
    kept.clear()
    cupy.cuda.Device().synchronize()
    cupy.get_default_memory_pool().free_all_blocks()


STEPS = [
    ("context", context),
    ("odd sizes", odd_sizes),
    ("kernels", kernels),
    ("matmul fp32", matmul),
    ("FFT", fft),
    ("freed", freed),
]
