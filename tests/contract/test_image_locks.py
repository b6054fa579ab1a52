"""The image's lock files have what pyproject.toml and contents.yaml ask for, and nothing else."""

import tomllib
from collections.abc import Iterator

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from deploy.image import locks, project
from deploy.image.downloads import PYTHON_VERSION
from deploy.image.renewing import wanted_of_python
from support import ROOT

ARCHITECTURES = tuple(locks.ARCHITECTURES)


def pinned(architecture: str) -> dict[str, str]:
    """Returns the locked version of each package of Python."""
    packages = locks.read_python_lock(locks.python_lock(architecture))
    return {canonicalize_name(each.name): each.version for each in packages}


def requirements() -> Iterator[Requirement]:
    """Yields what the project asks for on the image's Python."""
    environment = {key: str(value) for key, value in default_environment().items()}
    environment |= {"python_version": PYTHON_VERSION, "extra": ""}
    for text in wanted_of_python():
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate(environment):
            yield requirement


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_requirement_of_the_project_is_locked_within_its_bounds(architecture: str) -> None:
    locked = pinned(architecture)

    wanted = list(requirements())

    assert len(wanted) > 10
    for each in wanted:
        version = locked.get(canonicalize_name(each.name))
        assert version, f"{each.name} is not locked for {architecture}: make image-lock"
        assert each.specifier.contains(version), f"{each} is locked as {version}: make image-lock"


def test_all_architectures_have_the_same_packages_of_python() -> None:
    one, *others = (pinned(architecture) for architecture in ARCHITECTURES)

    assert one
    assert others == [one] * len(others)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_packages_of_debian_are_those_of_the_contents(architecture: str) -> None:
    lock = locks.read_debian_lock()

    packages = lock.packages[architecture]

    assert lock.suite == locks.SUITE
    assert [each.name for each in packages] == sorted(locks.read_contents().packages)
    for each in packages:
        assert each.path.endswith((f"_{architecture}.deb", "_all.deb"))
        assert len(bytes.fromhex(each.sha256)) == 32
        assert each.size_bytes > 0


def test_the_projects_wheel_is_made_of_all_that_pyproject_names() -> None:
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = {
        name.rstrip("*") for name in table["tool"]["setuptools"]["packages"]["find"]["include"]
    }
    files = {table["project"]["readme"], *table["project"]["license-files"]}
    manuals = {
        path.rpartition("/")[0]
        for paths in table["tool"]["setuptools"]["data-files"].values()
        for path in paths
    }

    assert set(project.SOURCES) == packages | files | manuals | {"pyproject.toml"}
    assert [name for name in project.SOURCES if not (ROOT / name).exists()] == []
