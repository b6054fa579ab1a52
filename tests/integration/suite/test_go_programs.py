"""Go programs of tests are built once for what they are made of, whole or not at all."""

from pathlib import Path

import pytest

from support.cluster import go_modules
from support.cluster.go_programs import MOST_KEPT, GoPrograms

#: It writes a program, and ends in the middle of the next one where it is told to.
GO = """\
#!/bin/sh
echo "$1" >> {told}
[ -e {lacks} ] && echo "missing go.sum entry for module providing package one" >&2 && exit 1
case "$2" in -modfile=*)
    file="${{2#*=}}"
    cat "$file" "${{file%mod}}sum" > {pins} ;;
esac
[ "$1" = build ] || exit 0
while [ "$1" != -o ]; do shift; done
echo whole > "$2/one"
[ -e {fails} ] && exit 1
echo whole > "$2/two"
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module, and a Go that notes in ``told`` what it was asked for."""
    monkeypatch.setenv("VGPU_CACHE", str(tmp_path / "cache"))
    (tmp_path / "go").write_text(
        GO.format(**{name: tmp_path / name for name in ("told", "fails", "lacks", "pins")})
    )
    (tmp_path / "go").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    folder = tmp_path / "module"
    (folder / "own").mkdir(parents=True)
    (folder / "go.mod").write_text("module it\n")
    (folder / "go.sum").write_text("first")
    return folder


def programs(module: Path, *packages: str, flags: str = "", release: str = "") -> GoPrograms:
    # What follows a dot is of the name.
    return GoPrograms("it-1.34", "the judge", packages, flags, module, release)


def told(module: Path) -> list[str]:
    return (module.parent / "told").read_text().split()


def test_what_is_there_asks_go_for_nothing(module: Path) -> None:
    these = programs(module, "one", "two")
    assert these.missing() == ""
    built = these.build()
    assert {path.name for path in built.iterdir()} == {"one", "two"}
    assert told(module) == ["list", "build"]

    again = programs(module, "two", "one")

    assert again.missing() == ""
    assert again.build() == built
    assert told(module) == ["list", "build"]


@pytest.mark.parametrize("other", ["sum", "source", "flags", "packages"])
def test_what_is_made_of_something_else_is_built(module: Path, other: str) -> None:
    first = programs(module, "one", "./own").build()
    if other in ("sum", "source"):
        (module / {"sum": "go.sum", "source": "own/main.go"}[other]).write_text("second")
    packages = ("one",) if other == "packages" else ("one", "./own")
    flags = "-X a.b=c" if other == "flags" else ""

    assert programs(module, *packages, flags=flags).build() != first
    assert first.is_dir()  # another checkout may still want it
    assert told(module) == ["build", "build"]


def test_a_build_that_fails_leaves_nothing_that_is_taken_for_whole(module: Path) -> None:
    fails = module.parent / "fails"
    fails.touch()
    these = programs(module, "one", "two")
    with pytest.raises(AssertionError):
        these.build()
    fails.unlink()

    assert {path.name for path in these.build().iterdir()} == {"one", "two"}
    assert told(module) == ["build", "build"]


def test_what_nobody_has_used_for_longest_goes(module: Path, tmp_path: Path) -> None:
    for number in range(MOST_KEPT + 2):
        (module / "go.sum").write_text(str(number))
        newest = programs(module, "one").build()

    kept = [path for path in (tmp_path / "cache/go").iterdir() if path.is_dir()]
    assert len(kept) == MOST_KEPT
    assert newest in kept


def test_a_module_that_is_not_pinned_is_no_reason_to_skip(module: Path) -> None:
    (module.parent / "lacks").touch()

    with pytest.raises(AssertionError, match=r"missing go\.sum entry"):
        programs(module, "one", "two").missing()


def test_versions_are_those_of_the_releases_and_the_newer_of_two(
    module: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest, older = "one v1.9.0\n\ttwo v0.0.0-2 // indirect", "one v1.10.0-rc.1\n\ttwo v0.0.0-1"
    tree = "k8s.io/api => ./staging/src/k8s.io/api"
    releases = {
        "k8s.io/kubernetes@v1.31.4": f"\tk8s.io/api v0.0.0\n\t{newest}\n\t{tree}\n",
        "helm@v3.2.0": f"require k8s.io/api v0.31.2\n\t{older}\n",
    }
    for name, text in releases.items():
        (tmp_path / name / "go.mod").parent.mkdir(parents=True)
        (tmp_path / name / "go.mod").write_text(f"module it\ngo 1.22.0\n{text}")
        (tmp_path / name / "go.sum").write_text(f"of {name}\n")
    (module / "go.mod").write_text(
        "module ours\n\nrequire (\n\tk8s.io/kubernetes v1.31.4\n\thelm v3.2.0\n)\n"
        "require (\n\tthree v1.0.0 // indirect\n)\n"
    )
    (module / "go.sum").write_text("ours\n")
    found = dict(name.split("@") for name in releases)
    monkeypatch.setattr(go_modules, "folder_of", lambda _, of: tmp_path / f"{of}@{found[of]}")

    programs(module, "one").build()
    assert " ".join((tmp_path / "pins").read_text().split()) == (
        "module ours require ( helm v3.2.0 k8s.io/api v0.31.4 k8s.io/kubernetes v1.31.4"
        " one v1.10.0-rc.1 three v1.0.0 two v0.0.0-2 )"
        " replace ( k8s.io/api => k8s.io/api v0.31.4 )"
        " ours of k8s.io/kubernetes@v1.31.4 of helm@v3.2.0"
    )

    programs(module, "one", release="helm").build()
    assert "kubernetes" not in (tmp_path / "pins").read_text()


def test_without_go_it_is_said_what_cannot_be_built(
    module: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(module))

    assert programs(module, "one").missing() == ("no Go compiler: the judge cannot be built")
