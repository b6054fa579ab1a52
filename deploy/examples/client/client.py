#!/usr/bin/env python3
"""A CUDA program that shows what a slice of a GPU looks like from inside.

It knows nothing of slices: it uses the driver API (cuda-bindings) and NVML (nvidia-ml-py) as any
program would, and prints one JSON object per line:

view     what cuMemGetInfo, cuDeviceTotalMem and NVML show once the context exists
memory   pieces of 64 MiB allocated until the driver refuses: bytes granted and the refusal's code,
         then whether one piece can be had again after one was freed (the rest stays allocated)
compute  kernels of 2 ms each, a few of them queued all the time, for some seconds: the time they
         asked for as a share of the time that passed

Then it watches the total that cuMemGetInfo shows; when someone changes the slice, it prints all
three again. SIGTERM ends it.

The kernel waits for a given time on the GPU's own clock, so `compute` measures time slices. Where
a share is held by giving a program fewer multiprocessors (MPS on a real GPU), such a kernel is not
slowed, and the figure stays near 100.
"""

import argparse
import collections
import ctypes
import json
import signal
import sys
import time
import uuid

import pynvml
from cuda.bindings import driver as cuda

PIECE_BYTES = 64 << 20
KERNEL_NS = 2_000_000
BLOCK_THREADS = 1024
QUEUED_KERNELS = 8  # so that the GPU has work where this program waits for a processor
WARM_UP_S = 0.3
WATCH_INTERVAL_S = 0.05

# Reads the GPU's nanosecond clock until the given time has passed.
SPIN_PTX = b"""
.version 6.4
.target sm_60
.address_size 64
.visible .entry spin_ns(.param .u64 duration)
{
    .reg .pred %again;
    .reg .u64 %wanted, %start, %now, %passed;
    ld.param.u64 %wanted, [duration];
    mov.u64 %start, %globaltimer;
LOOK:
    mov.u64 %now, %globaltimer;
    sub.u64 %passed, %now, %start;
    setp.lt.u64 %again, %passed, %wanted;
    @%again bra LOOK;
    ret;
}
\0"""


def checked(result):
    """Returns the values of a driver call; ends the program with the code's name on an error."""
    code, *values = result
    if code != cuda.CUresult.CUDA_SUCCESS:
        sys.exit(f"client: the driver answered {code.name} ({int(code)})")
    return values[0] if len(values) == 1 else values


def say(phase, **values):
    """Prints one line of output."""
    print(json.dumps({"phase": phase, "at": time.time(), **values}), flush=True)


class Client:
    """One context on the first GPU that this program can see, with the memory it holds."""

    def __init__(self):
        """Makes the context and loads the kernel."""
        checked(cuda.cuInit(0))
        self.device = checked(cuda.cuDeviceGet(0))
        context = checked(cuda.cuDevicePrimaryCtxRetain(self.device))
        checked(cuda.cuCtxSetCurrent(context))
        module = checked(cuda.cuModuleLoadData(SPIN_PTX))
        self.kernel = checked(cuda.cuModuleGetFunction(module, b"spin_ns"))
        attributes = cuda.CUdevice_attribute
        sms, threads = (
            checked(cuda.cuDeviceGetAttribute(attribute, self.device))
            for attribute in (
                attributes.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
                attributes.CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR,
            )
        )
        # Kernels that fill the GPU: MPS holds back none that fits into its client's part.
        self.blocks = sms * (threads // BLOCK_THREADS)
        self.stream = checked(cuda.cuStreamCreate(cuda.CUstream_flags.CU_STREAM_NON_BLOCKING))
        self.events = [checked(cuda.cuEventCreate(0)) for _ in range(QUEUED_KERNELS)]
        self.pieces = []
        pynvml.nvmlInit()
        self.uuid = f"GPU-{uuid.UUID(bytes=checked(cuda.cuDeviceGetUuid(self.device)).bytes)}"
        self.nvml = pynvml.nvmlDeviceGetHandleByUUID(self.uuid)

    def total_bytes(self):
        """Returns the total that cuMemGetInfo shows."""
        return checked(cuda.cuMemGetInfo())[1]

    def view(self):
        """Prints what the GPU looks like; returns the total shown."""
        free, total = checked(cuda.cuMemGetInfo())
        nvml = pynvml.nvmlDeviceGetMemoryInfo(self.nvml)
        name = checked(cuda.cuDeviceGetName(128, self.device)).split(b"\0")[0].decode()
        say(
            "view",
            gpu=name,
            uuid=self.uuid,
            cuda_free_bytes=free,
            cuda_total_bytes=total,
            device_total_bytes=checked(cuda.cuDeviceTotalMem(self.device)),
            nvml_total_bytes=nvml.total,
            nvml_used_bytes=nvml.used,
        )
        return total

    def memory(self):
        """Frees everything, allocates until refused, and tries whether a freed piece returns."""
        while self.pieces:
            checked(cuda.cuMemFree(self.pieces.pop()))
        free_bytes = checked(cuda.cuMemGetInfo())[0]
        refusal = self.allocate()
        while refusal == cuda.CUresult.CUDA_SUCCESS:
            refusal = self.allocate()
        granted = len(self.pieces)
        one_again = False
        if self.pieces:
            checked(cuda.cuMemFree(self.pieces.pop()))
            one_again = self.allocate() == cuda.CUresult.CUDA_SUCCESS
        say(
            "memory",
            free_before_bytes=free_bytes,
            piece_bytes=PIECE_BYTES,
            granted_bytes=granted * PIECE_BYTES,
            refusal_code=int(refusal),
            refusal_name=refusal.name,
            one_again_after_free=one_again,
        )

    def allocate(self):
        """Allocates one piece and keeps it; returns the driver's code."""
        code, pointer = cuda.cuMemAlloc(PIECE_BYTES)
        if code == cuda.CUresult.CUDA_SUCCESS:
            self.pieces.append(pointer)
        return code

    def compute(self, seconds):
        """Keeps kernels queued for a while and prints the share of the time they got."""
        self.run_kernels(WARM_UP_S)
        kernels, wall_s = self.run_kernels(seconds)
        share = 100 * kernels * KERNEL_NS / (wall_s * 1e9)
        say(
            "compute",
            kernels=kernels,
            kernel_ns=KERNEL_NS,
            wall_s=round(wall_s, 4),
            share_percent=round(share, 2),
        )

    def run_kernels(self, seconds):
        """Returns how many kernels ended between the first end and the last, and the time between.

        The first end is the start of the clock, so that nothing that was queued before counts.
        """
        waiting = collections.deque()
        completed, started_at = -1, None
        now = until = time.monotonic()
        until += seconds
        while now < until or waiting:
            if now < until:
                event = self.events[(completed + len(waiting)) % QUEUED_KERNELS]
                self.launch()
                checked(cuda.cuEventRecord(event, self.stream))
                waiting.append(event)
            if len(waiting) == QUEUED_KERNELS or now >= until:
                checked(cuda.cuEventSynchronize(waiting.popleft()))
                completed += 1
                if started_at is None:
                    started_at = time.monotonic()
                    until = started_at + seconds
            now = time.monotonic()
        return completed, now - started_at

    def launch(self):
        """Queues one kernel."""
        arguments = ((KERNEL_NS,), (ctypes.c_uint64,))
        grid, block = (self.blocks, 1, 1), (BLOCK_THREADS, 1, 1)
        checked(cuda.cuLaunchKernel(self.kernel, *grid, *block, 0, self.stream, arguments, 0))

    def show(self, seconds):
        """Runs the three phases; returns the total seen."""
        total = self.view()
        self.memory()
        self.compute(seconds)
        return total


def main():
    """Shows the slice, and again whenever it changes."""
    parser = argparse.ArgumentParser(description="Shows what this process sees of its GPU.")
    parser.add_argument("--seconds", type=float, default=1.5, help="length of the compute phase")
    parser.add_argument("--once", action="store_true", help="end after the first three lines")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    client = Client()
    total = client.show(options.seconds)
    while not options.once:
        time.sleep(WATCH_INTERVAL_S)
        if client.total_bytes() != total:
            total = client.show(options.seconds)


if __name__ == "__main__":
    main()
