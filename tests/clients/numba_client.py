"""A program of Numba, as its users write them; it prints what it saw as JSON.

It knows nothing of this project and runs on a real GPU, too. It looks at no result of a kernel.
"""

import json

import numpy
from numba import cuda
from numba.cuda.cudadrv.driver import CudaAPIError

MIB = 1 << 20
PIECE_BYTES = 256 * MIB


@cuda.jit
def add(left, right, out):  # type: ignore[no-untyped-def]
    index = cuda.grid(1)
    if index < out.size:
        out[index] = left[index] + right[index]


def free_bytes() -> int:
    return int(cuda.current_context().get_memory_info()[0])


def until_refused() -> int:
    """Takes memory in pieces until no more is granted, and returns how many bytes were."""
    pieces = []
    try:
        while True:
            pieces.append(cuda.device_array(PIECE_BYTES, numpy.uint8))
    except CudaAPIError:
        return len(pieces) * PIECE_BYTES


def main() -> None:
    stream = cuda.stream()
    left = cuda.to_device(numpy.arange(MIB, dtype=numpy.float32), stream)
    out = cuda.device_array_like(left)
    add[MIB // 256, 256, stream](left, left, out)
    stream.synchronize()
    host = cuda.to_device(numpy.array([7, 8, 9])).copy_to_host()  # there and back, without a kernel
    del left, out
    cuda.current_context().deallocations.clear()
    before_bytes = free_bytes()
    granted_bytes = until_refused()
    cuda.current_context().deallocations.clear()
    print(
        json.dumps(
            {
                "total_bytes": int(cuda.current_context().get_memory_info()[1]),
                "copied": host.tolist(),
                "free_bytes": before_bytes,
                "granted_bytes": granted_bytes,
                "given_back_bytes": free_bytes(),
            }
        )
    )


if __name__ == "__main__":
    main()
