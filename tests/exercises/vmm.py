"""Exercises of memory that is taken by handle, and mapped or bound apart from that."""

import ctypes
from ctypes import byref, c_int, c_size_t, c_uint, c_uint64, c_ulonglong, c_void_p

from support.exercise.driver import Driver, exercise
from support.exercise.handles import Properties, TeamProperties
from support.exercise.pool import ON_DEVICE, PINNED, Location

GPUS = 2  # one alone has no multicast objects
TILE_POOL = 1
SPARSE_ARRAYS = 112  # CUdevice_attribute
SPARSE, FLOAT = 0x40, 0x20
ARRAY, MAP, UNMAP = 0, 1, 2
TILE = 128  # of floats, in width and height


class Form(ctypes.Structure):
    """CUDA_ARRAY3D_DESCRIPTOR."""

    _fields_ = (
        ("width", c_size_t),
        ("height", c_size_t),
        ("depth", c_size_t),
        ("format", c_int),
        ("channels", c_uint),
        ("flags", c_uint),
    )


class MapInfo(ctypes.Structure):
    """CUarrayMapInfo, of a level of an array."""

    _fields_ = (
        ("resource_type", c_int),
        ("array", c_void_p),
        ("subresource_type", c_int),
        ("gap", c_uint),
        ("where", c_uint * 8),  # level, layer, offsets, extents
        ("operation", c_int),
        ("handle_type", c_int),
        ("handle", c_ulonglong),
        ("offset", c_ulonglong),
        ("device_mask", c_uint),
        ("flags", c_uint),
        ("reserved", c_uint * 2),
    )


def _create(driver: Driver, usage: int = 0) -> c_uint64:
    handle = c_uint64()
    wanted = Properties(PINNED, 0, Location(ON_DEVICE, 0), usage=usage)
    bytes = driver.sizes.granule_bytes
    with driver.charged(bytes, "vmm", given=True):
        driver.check("cuMemCreate", byref(handle), bytes, byref(wanted), 0)
    return handle


def _reserve(driver: Driver) -> c_uint64:
    address = c_uint64()
    driver.check("cuMemAddressReserve", byref(address), driver.sizes.granule_bytes, 0, 0, 0)
    return address


@exercise("cuMemCreate", "cuMemRelease")
def a_handle(driver: Driver) -> None:
    handle, granule = _create(driver), driver.sizes.granule_bytes
    with driver.full(left_bytes=granule - 1):
        wanted = Properties(PINNED, 0, Location(ON_DEVICE, 0))
        driver.refuse("cuMemCreate", byref(c_uint64()), granule, byref(wanted), 0)
    with driver.charged(-granule, "vmm", given=True):
        driver.check("cuMemRelease", handle)


@exercise("cuMemMap", "cuMemUnmap", "cuMemRelease")
def a_mapping(driver: Driver) -> None:
    handle, address = _create(driver), _reserve(driver)
    granule = driver.sizes.granule_bytes
    with driver.charged(0):
        driver.check("cuMemMap", address, granule, 0, handle, 0)
        driver.check("cuMemRelease", handle)
    with driver.charged(-granule, "vmm", given=True):
        driver.check("cuMemUnmap", address, granule)
    driver.check("cuMemAddressFree", address, granule)


@exercise("cuMemRetainAllocationHandle")
def a_handle_by_address(driver: Driver) -> None:
    handle, address, again = _create(driver), _reserve(driver), c_uint64()
    granule = driver.sizes.granule_bytes
    with driver.charged(0):
        driver.check("cuMemMap", address, granule, 0, handle, 0)
        driver.check("cuMemRetainAllocationHandle", byref(again), address)
        driver.check("cuMemRelease", handle)
        driver.check("cuMemUnmap", address, granule)
    with driver.charged(-granule, "vmm", given=True):
        driver.check("cuMemRelease", again)
    driver.check("cuMemAddressFree", address, granule)


@exercise("cuMulticastCreate", "cuMulticastBindMem", "cuMulticastBindAddr", "cuMulticastUnbind")
def multicast(driver: Driver) -> None:
    _multicast(driver, "", ())


@exercise("cuMulticastBindMem_v2", "cuMulticastBindAddr_v2")
def multicast_by_device(driver: Driver) -> None:
    _multicast(driver, "_v2", (0,))


def _multicast(driver: Driver, form: str, device: tuple[int, ...]) -> None:
    driver.needs_call("cuMulticastCreate", "multicast joins the GPUs of one machine, two at least")
    team, handle, address = c_uint64(), _create(driver), _reserve(driver)
    granule = driver.sizes.granule_bytes
    with driver.charged(0):
        driver.check("cuMulticastCreate", byref(team), byref(TeamProperties(1, 2 * granule)))
        driver.check("cuMulticastAddDevice", team, 0)
        driver.check(f"cuMulticastBindMem{form}", team, *device, 0, handle, 0, granule, 0)
        driver.check("cuMemMap", address, granule, 0, handle, 0)
        driver.check(f"cuMulticastBindAddr{form}", team, *device, granule, address, granule, 0)
        driver.check("cuMemUnmap", address, granule)
        driver.check("cuMemRelease", handle)
        driver.check("cuMulticastUnbind", team, 0, 0, granule)
    with driver.charged(-granule, "vmm", given=True):
        driver.check("cuMulticastUnbind", team, 0, granule, granule)
    driver.check("cuMemRelease", team)
    driver.check("cuMemAddressFree", address, granule)


def _tile(driver: Driver, symbol: str) -> None:
    driver.needs(driver.attribute(SPARSE_ARRAYS) == 1, "this GPU has no sparse arrays")
    array, handle = c_void_p(), _create(driver, TILE_POOL)
    form = Form(2 * TILE, TILE, 0, FLOAT, 1, SPARSE)
    driver.check("cuArray3DCreate_v2", byref(array), byref(form))
    where = (c_uint * 8)(0, 0, TILE, 0, 0, TILE, TILE, 1)
    entry = MapInfo(ARRAY, array, 0, 0, where, MAP, 0, handle.value, 0, 1)
    with driver.charged(0):
        driver.check(symbol, byref(entry), 1, None)
        driver.check("cuMemRelease", handle)
    entry.operation, entry.handle = UNMAP, 0
    with driver.charged(-driver.sizes.granule_bytes, "vmm"):
        driver.check(symbol, byref(entry), 1, None)
    driver.check("cuArrayDestroy", array)


@exercise("cuMemMapArrayAsync")
def a_tile(driver: Driver) -> None:
    _tile(driver, "cuMemMapArrayAsync")


@exercise("cuMemMapArrayAsync_ptsz")
def a_tile_on_the_threads_stream(driver: Driver) -> None:
    _tile(driver, "cuMemMapArrayAsync_ptsz")
