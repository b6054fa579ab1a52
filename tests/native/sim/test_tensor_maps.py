"""Tensor maps of the simulated GPU: which ones it takes, and that an address can be changed."""

from pathlib import Path

from libvgpu.sim import PROFILES, Machine
from support.sim.programs import run, said_in

INVALID_VALUE, NOT_SUPPORTED = 1, 801

MAPS = """
open_context()
CUBE = dict(rank=3, sizes=[8] * 3, strides=(16, 128), box=[8] * 3, steps=[1] * 3)
def named(kind, name): return getattr(kind, "CU_TENSOR_MAP_" + name)
def encode(kind="FLOAT16", rank=2, address=0x7f0000000000, sizes=(64, 32), strides=(128,),
           box=(64, 8), steps=(1, 1), interleave="NONE", swizzle="NONE", fill="NONE"):
    return cuda.cuTensorMapEncodeTiled(
        named(cuda.CUtensorMapDataType, "DATA_TYPE_" + kind), cuda.cuuint32_t(rank), address,
        [cuda.cuuint64_t(n) for n in sizes], [cuda.cuuint64_t(n) for n in strides],
        [cuda.cuuint32_t(n) for n in box], [cuda.cuuint32_t(n) for n in steps],
        named(cuda.CUtensorMapInterleave, "INTERLEAVE_" + interleave),
        named(cuda.CUtensorMapSwizzle, "SWIZZLE_" + swizzle),
        named(cuda.CUtensorMapL2promotion, "L2_PROMOTION_L2_128B"),
        named(cuda.CUtensorMapFloatOOBfill, "FLOAT_OOB_FILL_" + fill))
def code(**change): return int(encode(**change)[0])
NAN = "NAN_REQUEST_ZERO_FMA"
"""


WITHIN_AND_BEYOND = [
    ("", "rank=0"),
    ("rank=1, sizes=[64], strides=[], box=[64], steps=[1]", "rank=6"),
    ("address=0x7f0000000010", "address=0x7f0000000008"),
    ("sizes=(1 << 31, 32)", "sizes=((1 << 31) + 1, 32)"),
    ("strides=(144,)", "strides=(136,)"),
    ("box=(256, 256)", "box=(64, 257)"),
    ("box=(8, 1)", "box=(4, 1)"),
    ("steps=(0, 8)", "steps=(1, 9)"),
    ("swizzle='128B'", "swizzle='64B'"),
    ("fill=NAN", "kind='INT32', box=(32, 8), fill=NAN"),
    ("interleave='16B', **CUBE", "interleave='16B'"),
    (
        "kind='16U6_ALIGN16B', sizes=(128, 8), box=(128, 8), swizzle='128B'",
        "kind='16U6_ALIGN16B', sizes=(64, 8), box=(128, 8), swizzle='128B'",
    ),
]


def test_a_map_is_taken_within_what_a_device_can_walk(machine: Machine) -> None:
    codes = ", ".join(f"[code({good}), code({bad})]" for good, bad in WITHIN_AND_BEYOND)
    said = said_in(machine, MAPS + f"say(codes=[{codes}])")["codes"]

    wrong = [
        case
        for case, answers in zip(WITHIN_AND_BEYOND, said, strict=True)
        if answers != [0, INVALID_VALUE]
    ]
    assert wrong == []


def test_the_address_of_a_map_can_be_changed(machine: Machine) -> None:
    code = """
made, other = check(encode()), check(encode(address=0x7f0000001000))
words = lambda one: [int(word) for word in one.opaque]
same(words(made) == words(other), False)
moved = [int(cuda.cuTensorMapReplaceAddress(made, 0x7f0000001000 + more)[0]) for more in (8, 0)]
same(moved, [INVALID_VALUE, 0])
same(words(made) == words(other), True)
"""
    run(machine, MAPS + code)


def test_devices_before_hopper_have_none(tmp_path: Path) -> None:
    older = Machine.create([PROFILES["a100-80g"]], tmp_path / "m")

    assert said_in(older, MAPS + "say(code=code())") == {"code": NOT_SUPPORTED}
