"""A program of CuPy, as its users write them; it prints what it saw as JSON.

It knows nothing of this project and runs on a real GPU, too. It looks at no result of a kernel.
"""

import json

import cupy

MIB = 1 << 20
PIECE_BYTES = 256 * MIB


def free_bytes() -> int:
    return int(cupy.cuda.runtime.memGetInfo()[0])


def until_refused() -> int:
    """Takes memory in pieces until no more is granted, and returns how many bytes were."""
    pieces = []
    try:
        while True:
            pieces.append(cupy.cuda.memory.alloc(PIECE_BYTES))
    except cupy.cuda.memory.OutOfMemoryError:
        return len(pieces) * PIECE_BYTES


def main() -> None:
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        numbers = cupy.arange(MIB, dtype=cupy.float32)
        doubled = numbers * 2 + cupy.sin(numbers)
        total = doubled.sum()
        square = doubled.reshape(1024, 1024)
        product = square @ square  # by cuBLAS
    stream.synchronize()
    host = cupy.asnumpy(cupy.asarray([7, 8, 9]))  # there and back, without a kernel
    stream.begin_capture()
    with stream:
        cupy.multiply(doubled, 3, out=doubled)
    graph = stream.end_capture()
    graph.launch(stream)
    stream.synchronize()
    del numbers, doubled, total, square, product
    pool = cupy.get_default_memory_pool()
    pool.free_all_blocks()
    before_bytes = free_bytes()
    granted_bytes = until_refused()
    pool.free_all_blocks()
    print(
        json.dumps(
            {
                "total_bytes": int(cupy.cuda.runtime.memGetInfo()[1]),
                "copied": host.tolist(),
                "free_bytes": before_bytes,
                "granted_bytes": granted_bytes,
                "given_back_bytes": free_bytes(),
            }
        )
    )


if __name__ == "__main__":
    main()
