"""setuptools' commands for a project whose native parts `_build` makes.

``pyproject.toml`` names them. setuptools loads this file by its path, before the package can be
imported, and perhaps next to an editable install of another checkout: the root of this one comes
first on the path.
"""

import sys
from pathlib import Path

from setuptools.command.bdist_wheel import bdist_wheel as _bdist_wheel
from setuptools.command.build_ext import build_ext as _build_ext
from setuptools.errors import CompileError

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from libvgpu import _build  # noqa: E402
from libvgpu.errors import VgpuError  # noqa: E402

PORTABLE_PLATFORM = "manylinux2014_x86_64"


class build_ext(_build_ext):  # noqa: N801 - setuptools looks the command up by this name
    """setuptools' build_ext, which leaves compiling and linking to `_build`."""

    def run(self) -> None:
        """Builds into the checkout for an editable install, else into the build folder.

        Raises:
            CompileError: it cannot be built; says why.
        """
        is_in_place = self.inplace or self.editable_mode
        try:
            _build.build(into=ROOT if is_in_place else Path(self.build_lib).resolve())
        except VgpuError as error:
            raise CompileError(error.message) from None

    def get_outputs(self) -> list[str]:
        """Returns what is built outside of the checkout."""
        if self.inplace or self.editable_mode:
            return []
        return [str(Path(self.build_lib) / file) for file in _build.outputs()]

    def get_output_mapping(self) -> dict[str, str]:
        """Returns nothing: what is built in place is found there."""
        return {}


class bdist_wheel(_bdist_wheel):  # noqa: N801 - as above
    """setuptools' bdist_wheel, which would call a portable wheel one for this machine's Linux."""

    def finalize_options(self) -> None:
        """Names the platform of a portable wheel."""
        if _build.is_portable():
            self.plat_name = PORTABLE_PLATFORM
        super().finalize_options()
