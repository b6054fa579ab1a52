"""What JAX programs do of a GPU's memory; each step leaves the GPU idle. See run_steps.py."""

import os
from typing import Any

# Else it takes three quarters of the GPU at once, and no step would show.
os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"

import jax
import jax.numpy

#: What the steps have and keep; emptied by the step "freed".
kept: list[Any] = []
ODD_BYTES = (1, 513, 600000, 1048577, 3000001, 20000003)


def settled(*arrays: Any) -> None:
    kept.extend(jax.block_until_ready(each) for each in arrays)


def context() -> None:
    if jax.default_backend() != "gpu":
        raise RuntimeError(f"JAX uses {jax.default_backend()}, not the GPU")
    settled(jax.numpy.zeros(1))


def odd_sizes() -> None:
    settled(*(jax.numpy.zeros(size, dtype=jax.numpy.uint8) for size in ODD_BYTES))


def kernels() -> None:
    settled(jax.jit(lambda numbers: (numbers * 2 + 1).sum())(jax.numpy.ones(1 << 20)))


def matmul(kind: Any) -> None:
    left = jax.numpy.ones((1024, 1024), dtype=kind)
    settled(left @ left)


def convolution() -> None:
    image, kernel = jax.numpy.ones((8, 16, 64, 64)), jax.numpy.ones((32, 16, 3, 3))
    settled(jax.lax.conv(image, kernel, (1, 1), "VALID"))


def freed() -> None:
    for array in kept:
        array.delete()
    kept.clear()


STEPS = [
    ("context", context),
    ("odd sizes", odd_sizes),
    ("kernels", kernels),
    ("matmul fp32", lambda: matmul(jax.numpy.float32)),
    ("matmul fp16", lambda: matmul(jax.numpy.float16)),
    ("convolution", convolution),
    ("freed", freed),
]
