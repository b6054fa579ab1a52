"""Our declarations of the driver API and of NVML say what NVIDIA's headers say.

The compiler compares: prototypes by declaring each function twice, constants and structures by
printing them from either header.
"""

import re
from pathlib import Path

import pytest

from support.shim.headers import COMPILER, CUDA, NVML, Interface, compiles, values

pytestmark = [
    pytest.mark.skipif(COMPILER is None, reason="no gcc"),
    pytest.mark.parametrize(
        "interface",
        [
            pytest.param(
                each,
                id=each.header,
                marks=pytest.mark.skipif(
                    each.path is None, reason=f"no {each.header}: install {each.package}"
                ),
            )
            for each in (CUDA, NVML)
        ],
    ),
]


def test_prototypes_agree(interface: Interface, tmp_path: Path) -> None:
    both = f"{interface.include}#define {interface.guard}\n{interface.include_ours}"

    result = compiles(interface, both + "int main(void) {}\n", tmp_path)

    assert result.returncode == 0, result.stderr


def test_a_wrong_prototype_would_be_found(interface: Interface, tmp_path: Path) -> None:
    wrong = f"{interface.include}{interface.wrong}\nint main(void) {{}}\n"

    result = compiles(interface, wrong, tmp_path)

    assert "conflicting types" in result.stderr


def test_constants_agree(interface: Interface, tmp_path: Path) -> None:
    names = re.findall(r"^\s+X\((\w+),", interface.types(), flags=re.M)
    names += re.findall(rf"^    ({interface.constant}) = ", interface.types(), flags=re.M)
    assert len(names) > 50

    ours = values(interface, interface.include_ours, names, tmp_path)

    assert ours == values(interface, interface.include, names, tmp_path)


def test_structures_agree_in_size_and_offsets(interface: Interface, tmp_path: Path) -> None:
    expressions = []
    for body, name in re.findall(
        r"typedef (?:struct|union)(?: \w+)? \{(.*?)\n\} (\w+);", interface.types(), flags=re.S
    ):
        expressions.append(f"sizeof({name})")
        for field in re.findall(r"^    \w[\w ]*?[ *](\w+)(?:\[\d+\])?;", body, flags=re.M):
            if field != interface.unchecked_field:
                expressions += [f"offsetof({name}, {field})", f"sizeof((({name} *)0)->{field})"]
    assert len(expressions) > 40

    ours = values(interface, interface.include_ours, expressions, tmp_path)

    assert ours == values(interface, interface.include, expressions, tmp_path)
