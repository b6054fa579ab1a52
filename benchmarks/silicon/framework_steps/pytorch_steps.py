"""What PyTorch programs do of a GPU's memory; each step leaves the GPU idle. See run_steps.py."""

from typing import Any

import torch

#: What the steps have and keep; emptied by the step "freed".
kept: list[Any] = []
#: Around the sizes at which the driver and PyTorch's allocator change their ways.
ODD_BYTES = (1, 513, 600000, 1048577, 3000001, 20000003)


def settled(*tensors: Any) -> None:
    kept.extend(tensors)
    torch.cuda.synchronize()


def context() -> None:
    settled(torch.zeros(1, device="cuda"))


def odd_sizes() -> None:
    settled(*(torch.empty(size, dtype=torch.uint8, device="cuda") for size in ODD_BYTES))


def kernels() -> None:
    numbers = torch.rand(1 << 20, device="cuda")
    settled(numbers, (numbers * 2 + 1).sort().values.sum())


def matmul(kind: Any) -> None:
    left = torch.rand(1024, 1024, device="cuda").to(kind)
    settled(left @ left)


def convolution() -> None:
    layer = torch.nn.Conv2d(16, 32, 3, device="cuda")
    out = layer(torch.rand(8, 16, 64, 64, device="cuda"))
    out.sum().backward()
    settled(out)


def fft() -> None:
    settled(torch.fft.fft(torch.rand(1 << 16, device="cuda")))


def solve() -> None:
    matrix = torch.rand(256, 256, device="cuda") + 256 * torch.eye(256, device="cuda")
    settled(torch.linalg.solve(matrix, matrix))


def graph() -> None:
    numbers = torch.rand(1 << 20, device="cuda")
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        result = numbers * 2 + 1
    captured.replay()
    settled(numbers, result, captured)


def freed() -> None:
    kept.clear()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()


def compiled() -> None:
    function = torch.compile(lambda numbers: (numbers * 2 + 1).relu())
    settled(function(torch.rand(1 << 20, device="cuda")))


STEPS = [
    ("context", context),
    ("odd sizes", odd_sizes),
    ("kernels", kernels),
    ("matmul fp32", lambda: matmul(torch.float32)),
    ("matmul fp16", lambda: matmul(torch.float16)),
    ("convolution", convolution),
    ("FFT", fft),
    ("solve", solve),
    ("graph", graph),
    ("freed", freed),
]
SLOW_STEPS = [("compiled by Triton", compiled)]
