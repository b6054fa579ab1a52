"""The JSON Schema takes the files that the agent takes, and refuses the usual mistakes."""

import jsonschema
import pytest
import yaml

from deviceplugin.config.json_schema import json_schema
from support import ROOT

GOOD = [
    "version: v1\n",
    (ROOT / "deploy/examples/config.yaml").read_text(),
    (ROOT / "deploy/examples/fleet.yaml").read_text(),
    "version: v1\nsharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 5}]}}\n",
    "version: v1\nflags: {plugin: {deviceListStrategy: [envvar, cdi-cri]}}\n",
    "version: v1\nflags: null\nsharing: {mps: null, timeSlicing: {timeSlice: null}}\n",
    "version: v1\nsharing: {fractional: [{family: vgpu, compute: off}]}\n",
    "version: v1\nsharing: {fractional: [{family: vgpu, loneHalves: forbid}]}\n",
    "version: v1\nquotas: [{namespace: a, family: mps, core: 0, memory: 1Ti}, {namespace: b}]\n",
]
BAD = [
    "{}",
    "version: v2\n",
    "version: v1\nsharing: {renameByDefault: true}\n",
    "version: v1\nsharing: {timeSlicing: {resources: [{name: gpu, replicas: 1}]}}\n",
    "version: v1\nsharing: {timeSlicing: {resources: [{name: gpu, replicas: 24576}]}}\n",
    "version: v1\nflags: {migStrategy: all}\n",
    "version: null\n",
    "version: v1\nlimits: [null]\n",
    "version: v1\nflags: {plugin: {deviceListStrategy: mounts}}\n",
    "version: v1\nsharing: {fractional: [{family: vgpus}]}\n",
    "version: v1\nsharing: {fractional: [{family: vgpu, loneHalves: never}]}\n",
    "version: v1\nquotas: [{core: 5}]\n",
    "version: v1\nquotas: [{namespace: a, family: gpu}]\n",
    "version: v1\nquotas: [{namespace: a, core: -1}]\n",
]


@pytest.mark.parametrize("text", GOOD)
def test_good_files_pass(text: str) -> None:
    jsonschema.validate(yaml.safe_load(text), json_schema())


@pytest.mark.parametrize("text", BAD)
def test_bad_files_do_not(text: str) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(yaml.safe_load(text), json_schema())
