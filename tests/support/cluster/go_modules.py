"""Files of Go modules that are read and not compiled; versions and hashes stand in a go.mod and its
go.sum."""

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
        AssertionError: it is there with another content than go.sum says, or go.mod lacks it.
    """
    version = re.search(_REQUIRED.format(re.escape(path)), (required / "go.mod").read_text(), re.M)
    assert version is not None, f"{required / 'go.mod'} does not require {path}"
    if shutil.which("go") is None:
        raise NotHere(f"no Go, which fetches {path}")
    try:
        got = subprocess.run(
            ["go", "mod", "download", "-json", f"{path}@{version[1]}"],
            cwd=required, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise NotHere(f"{path} did not come within {_TIMEOUT_S:.0f} s") from None
    said = json.loads(got.stdout) if got.stdout.startswith("{") else {}
    problem = said.get("Error", "" if got.returncode == 0 else got.stderr)
    assert "SECURITY ERROR" not in problem, problem
    if problem:
        raise NotHere(f"{path} cannot be had: {problem[-300:]}")
    return Path(said["Dir"])
