"""A real kubectl for tests: that of PATH, else one built as the API server of the tests is."""

import os
import shutil
from pathlib import Path

from . import ROOT, go_programs
from .control_plane import KUBERNETES

_SOURCE = ROOT / "tests/e2e/kubectl"
_PACKAGE = "k8s.io/kubernetes/cmd/kubectl"


def missing() -> str:
    """Returns as a sentence what keeps a kubectl from being there, empty if nothing does."""
    return "" if shutil.which("kubectl") else go_programs.missing(_SOURCE, "kubectl")


def path_with_kubectl() -> str:
    """Returns a PATH on which there is a kubectl.

    Raises:
        AssertionError: there is none yet, and it does not build, with what the compiler says.
    """
    path = os.environ["PATH"]
    if shutil.which("kubectl"):
        return path
    flags = go_programs.kubernetes_version(KUBERNETES)
    built: Path = go_programs.build_together(_SOURCE, "kubectl", {_PACKAGE: flags})
    return f"{built}{os.pathsep}{path}"
