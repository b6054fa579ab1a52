"""`kubectl vgpu` runs where only the package's own dependencies are, not those of the agent."""

import sys

import pytest

from support import ROOT
from support.ended import run_to_end

pytestmark = pytest.mark.process

OF_THE_AGENT = ("grpc", "google.protobuf", "prometheus_client", "waitress", "lightkube", "httpx2",
                "werkzeug")  # fmt: skip
CODE = f"""
import importlib, sys
from vgpuctl.cluster.cli import VERBS
for module, _ in VERBS.values():
    importlib.import_module(module)
print([name for name in {OF_THE_AGENT!r} if name in sys.modules], len(VERBS))
"""


def test_no_verb_needs_a_library_of_the_agent() -> None:
    done = run_to_end([sys.executable, "-c", CODE], cwd=ROOT, check=True)
    assert done.stdout == "[] 6\n"
