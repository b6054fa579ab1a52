"""Go modules of others, as they were released; a go.mod and its go.sum have versions and hashes."""

import functools
import json
import re
import shutil
import subprocess
from pathlib import Path

_TIMEOUT_S = 120.0
_REQUIRED = r"^\s*(?:require\s+)?{} (v\S+)"


class NotHere(Exception):  # noqa: N818 - a reason to skip, and no error
    """A module cannot be had on this machine, now."""


@functools.cache
def folder_of(required: Path, path: str) -> Path:
    """Returns where a module lies, fetched if it is not there yet.

    Args:
        required: folder with the go.mod that requires it.
        path: of the module.

    Raises:
        NotHere: there is no Go, or nobody answers; in a sentence.
        AssertionError: it is there with another content than go.sum says, or one of both lacks it.
    """
    version = version_of(required, path)
    assert f"{path} {version} h1:" in (required / "go.sum").read_text(), f"{path} is not pinned"
    if shutil.which("go") is None:
        raise NotHere(f"no Go, which fetches {path}")
    try:
        got = subprocess.run(
            ["go", "mod", "download", "-json", f"{path}@{version}"],
            cwd=required,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NotHere(f"{path} did not come within {_TIMEOUT_S:.0f} s") from None
    said = json.loads(got.stdout) if got.stdout.startswith("{") else {}
    problem = said.get("Error", "" if got.returncode == 0 else got.stderr)
    assert "SECURITY ERROR" not in problem, problem
    if problem:
        raise NotHere(f"{path} cannot be had: {problem[-300:]}")
    return Path(said["Dir"])


def version_of(required: Path, path: str) -> str:
    """Returns the version of a module that the go.mod of a folder requires, with the v."""
    version = re.search(_REQUIRED.format(re.escape(path)), (required / "go.mod").read_text(), re.M)
    assert version is not None, f"{required / 'go.mod'} does not require {path}"
    return version[1]
