"""NVIDIA's headers, from the wheels of the `dev` extra, and our declarations of the same."""

import json
import shutil
import subprocess
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from support import ROOT
from support.ended import printed
from support.waiting import PATIENCE_S

COMPILER = shutil.which("gcc")


@dataclass(frozen=True)
class Interface:
    """One interface: NVIDIA's header and ours.

    Attributes:
        header: the file name in the wheel.
        package: the wheel.
        preamble: what makes NVIDIA's header declare every version by its own name.
        ours: our headers below ``libvgpu/include``.
        guard: the macro that leaves our types out.
        constant: pattern of the names of constants.
        wrong: a prototype that differs from NVIDIA's.
        unchecked_field: of our structures, which stands for members we do not name.
    """

    header: str
    package: str
    preamble: str
    ours: tuple[str, ...]
    guard: str
    constant: str
    wrong: str
    unchecked_field: str = ""

    @property
    def path(self) -> Path | None:
        """Where NVIDIA's header is, None when the wheel is not installed."""
        root = Path(sysconfig.get_path("purelib"), "nvidia")
        return next(root.glob(f"cu*/include/{self.header}"), None)

    @property
    def include(self) -> str:
        return f"{self.preamble}\n#include <{self.header}>\n"

    @property
    def include_ours(self) -> str:
        return "".join(f'#include "{name}"\n' for name in self.ours)

    def types(self) -> str:
        """Returns the parts of our headers that declare types and constants."""
        texts = [(ROOT / "libvgpu/include" / name).read_text() for name in self.ours]
        return "".join(
            text.split(f"#ifndef {self.guard}")[1].split("#endif /* VGPU_WITH_")[0]
            for text in texts
            if f"#ifndef {self.guard}" in text
        )


CUDA = Interface(
    header="cuda.h",
    package="nvidia-cuda-runtime",
    preamble="#define __CUDA_API_VERSION_INTERNAL",
    ours=(
        "vgpu/cuda_api.h",
        "vgpu/cuda_array.h",
        "vgpu/cuda_calls.h",
        "vgpu/cuda_vmm.h",
        "vgpu/cuda_graph.h",
    ),
    guard="VGPU_WITH_CUDA_H",
    constant=r"CU\w+",
    wrong="CUresult cuMemAlloc_v2(CUdeviceptr *address, unsigned int bytes);",
    unchecked_field="alignment",
)
NVML = Interface(
    header="nvml.h",
    package="nvidia-nvml-dev",
    preamble="#define NVML_NO_UNVERSIONED_FUNC_DEFS",
    ours=("vgpu/nvml_api.h",),
    guard="VGPU_WITH_NVML_H",
    constant=r"NVML\w+",
    wrong="nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, int *index);",
)


def compiles(interface: Interface, source: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Compiles a text with both include folders; the program is ``folder/program``."""
    assert interface.path is not None
    (folder / "program.c").write_text(source)
    return subprocess.run(
        [str(COMPILER), "-std=gnu11", "-Wall", "-Wextra", "-Werror",
         f"-I{interface.path.parent}", f"-I{ROOT / 'libvgpu/include'}",
         "program.c", "-o", "program"],
        cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip


def values(
    interface: Interface, include: str, expressions: list[str], folder: Path
) -> dict[str, int]:
    """Returns what each C expression is worth under ``include``."""
    lines = [
        f'printf("%s\\"{e}\\": %lld", first++ ? "," : "{{", (long long)({e}));' for e in expressions
    ]
    body = "\n".join(lines)
    head = f"#include <stddef.h>\n#include <stdio.h>\n{include}\n"
    built = compiles(
        interface, head + f'int main(void) {{ int first = 0;\n{body}\nputs("}}"); }}\n', folder
    )
    assert built.returncode == 0, built.stderr
    answer = printed(folder / "program")
    found: dict[str, int] = json.loads(answer)
    return found
