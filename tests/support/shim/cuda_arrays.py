"""Arrays and copies of boxes for the small programs that tests start, as `cuda_client`."""

from typing import Any

from cuda.bindings import driver

from support.shim.cuda_client import check

TYPE = driver.CUmemorytype
FLOAT = driver.CUarray_format.CU_AD_FORMAT_FLOAT
BYTE = driver.CUarray_format.CU_AD_FORMAT_UNSIGNED_INT8


def form(width: int, height: int = 0, depth: int = 0, **fields: Any) -> Any:
    """Returns the descriptor of an array, of single bytes unless told otherwise."""
    made = driver.CUDA_ARRAY3D_DESCRIPTOR()
    made.Width, made.Height, made.Depth = width, height, depth
    made.Format, made.NumChannels, made.Flags = BYTE, 1, 0
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def array(width: int, height: int = 0, depth: int = 0, **fields: Any) -> Any:
    """Makes an array."""
    return check(driver.cuArray3DCreate(form(width, height, depth, **fields)))


def _place(box: Any, side: str, memory: Any) -> None:
    if isinstance(memory, (bytes, bytearray)):
        setattr(box, f"{side}MemoryType", TYPE.CU_MEMORYTYPE_HOST)
        setattr(box, f"{side}Host", memory)
    elif isinstance(memory, driver.CUarray):
        setattr(box, f"{side}MemoryType", TYPE.CU_MEMORYTYPE_ARRAY)
        setattr(box, f"{side}Array", memory)
    else:
        setattr(box, f"{side}MemoryType", TYPE.CU_MEMORYTYPE_DEVICE)
        setattr(box, f"{side}Device", memory)


def box(kind: Any, target: Any, source: Any, extent: tuple[int, ...], **fields: int) -> Any:
    """Returns the description of a copy; ``extent`` is its width in bytes, height and depth."""
    made = kind()
    _place(made, "dst", target)
    _place(made, "src", source)
    for name, value in zip(("WidthInBytes", "Height", "Depth"), extent, strict=False):
        setattr(made, name, value)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def copy_2d(target: Any, source: Any, extent: tuple[int, int], **fields: int) -> int:
    """Copies a flat box and returns the driver's code."""
    made = box(driver.CUDA_MEMCPY2D, target, source, extent, **fields)
    return int(driver.cuMemcpy2D(made)[0])


def copy_3d(target: Any, source: Any, extent: tuple[int, int, int], **fields: int) -> int:
    """Copies a box and returns the driver's code."""
    made = box(driver.CUDA_MEMCPY3D, target, source, extent, **fields)
    return int(driver.cuMemcpy3D(made)[0])


def cut(
    data: bytes, pitch: int, rows: int, start: tuple[int, int, int], extent: tuple[int, int, int]
) -> bytes:
    """Returns the bytes of a box out of slices of ``rows`` rows of ``pitch`` bytes."""
    x, y, z = start
    width, height, depth = extent
    lines = [((z + k) * rows + y + j) * pitch + x for k in range(depth) for j in range(height)]
    return b"".join(data[at : at + width] for at in lines)
