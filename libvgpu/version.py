"""Which version of the project this is."""

from importlib import metadata


def installed_version() -> str:
    """Returns the installed version, ``source tree`` where none is installed."""
    try:
        return metadata.version("vgpu")
    except metadata.PackageNotFoundError:
        return "source tree"
