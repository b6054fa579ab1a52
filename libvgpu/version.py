"""Which version of the project this is."""

from importlib import metadata


def installed_version() -> str:
    """Returns the installed version.

    ``source tree`` stands for a package that is not installed, ``unknown`` for one whose metadata
    cannot be read.
    """
    try:
        return metadata.version("vgpu")
    except metadata.PackageNotFoundError:
        return "source tree"
    except OSError:
        return "unknown"
