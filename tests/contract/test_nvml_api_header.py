"""Our declarations of NVML say what NVIDIA's header says.

The compiler compares: prototypes by declaring each function twice, constants and structure sizes by
printing them from either header. The header comes with a package of the `dev` extra.
"""

import json
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

from support import ROOT

OURS = ROOT / "libvgpu/include/vgpu/nvml_api.h"
NVML_INCLUDE = next(Path(sysconfig.get_path("purelib"), "nvidia").glob("cu*/include/nvml.h"), None)
COMPILE_SECONDS = 60

pytestmark = [
    pytest.mark.skipif(NVML_INCLUDE is None, reason="no nvml.h: install nvidia-nvml-dev"),
    pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc"),
]

REAL = "#define NVML_NO_UNVERSIONED_FUNC_DEFS\n#include <nvml.h>\n"


def compiles(source: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Compiles a text with both include folders; the program is ``folder/program``."""
    assert NVML_INCLUDE is not None
    (folder / "program.c").write_text(source)
    return subprocess.run(
        ["gcc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", f"-I{NVML_INCLUDE.parent}",
         f"-I{ROOT / 'libvgpu/include'}", "program.c", "-o", "program"],
        cwd=folder, capture_output=True, text=True, timeout=COMPILE_SECONDS, check=False,
    )  # fmt: skip


def printed(source: str, folder: Path) -> dict[str, int]:
    """Returns what a program that prints one JSON object prints."""
    built = compiles(source, folder)
    assert built.returncode == 0, built.stderr
    answer = subprocess.run(
        [folder / "program"], capture_output=True, text=True, timeout=10, check=True
    )
    values: dict[str, int] = json.loads(answer.stdout)
    return values


def printer(include: str, expressions: list[str]) -> str:
    lines = [f'printf("%s\\"{e}\\": %lld", first++ ? "," : "{{", (long long)({e}));'
             for e in expressions]  # fmt: skip
    body = "\n".join(lines)
    head = f"#include <stddef.h>\n#include <stdio.h>\n{include}\n"
    return head + f'int main(void) {{ int first = 0;\n{body}\nputs("}}"); }}\n'


def types_part() -> str:
    return OURS.read_text().split("#ifndef VGPU_WITH_NVML_H")[1].split("#endif /* VGPU_WITH_")[0]


def test_prototypes_agree(tmp_path: Path) -> None:
    both = f'{REAL}#define VGPU_WITH_NVML_H\n#include "vgpu/nvml_api.h"\nint main(void) {{}}\n'

    result = compiles(both, tmp_path)

    assert result.returncode == 0, result.stderr


def test_a_wrong_prototype_would_be_found(tmp_path: Path) -> None:
    wrong = (
        f"{REAL}nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, int *index);\nint main(){{}}\n"
    )

    result = compiles(wrong, tmp_path)

    assert "conflicting types" in result.stderr


def test_constants_agree(tmp_path: Path) -> None:
    names = re.findall(r"^\s+X\((\w+),", types_part(), flags=re.M)
    names += re.findall(r"^    (NVML\w+) = ", types_part(), flags=re.M)
    assert len(names) > 50

    ours = printed(printer('#include "vgpu/nvml_api.h"', names), tmp_path)

    assert ours == printed(printer(REAL, names), tmp_path)


def test_structures_agree_in_size_and_offsets(tmp_path: Path) -> None:
    expressions = []
    for body, name in re.findall(r"typedef struct(?: \w+)? \{(.*?)\n\} (\w+);", types_part(),
                                 flags=re.S):  # fmt: skip
        expressions.append(f"sizeof({name})")
        fields = re.findall(r"^    \w[\w ]*?[ *](\w+)(?:\[\d+\])?;", body, flags=re.M)
        for field in fields:
            expressions += [f"offsetof({name}, {field})", f"sizeof((({name} *)0)->{field})"]
    assert len(expressions) > 40

    ours = printed(printer('#include "vgpu/nvml_api.h"', expressions), tmp_path)

    assert ours == printed(printer(REAL, expressions), tmp_path)
