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
    "version: v1\nquotas: [{namespace: a, core: 400%, memory: 0}, {namespace: b, memory: 1.5T}]\n",
    "version: v1\nlimits: [{core: 60%, memory: 6 GiB}, {core: 30, memory: 512m}]\n",
    "version: v1\nsharing: {fractional: [{family: vgpu, match: {minMemory: 40GB}}]}\n",
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
    "version: v1\nquotas: [{namespace: a, memory: 160}]\n",
    "version: v1\nlimits: [{memory: 6}]\n",
    'version: v1\nlimits: [{memory: "6442450944"}]\n',
    "version: v1\nlimits: [{core: 101}]\n",
    "version: v1\nlimits: [{memory: 50%}]\n",
    "version: v1\nsharing: {fractional: [{family: vgpu, memoryUnit: 1}]}\n",
    "version: v1\nsharing: {fractional: [{family: vgpu, match: {maxMemory: 40}}]}\n",
]


@pytest.mark.parametrize("text", GOOD)
def test_good_files_pass(text: str) -> None:
    jsonschema.validate(yaml.safe_load(text), json_schema())


@pytest.mark.parametrize("text", BAD)
def test_bad_files_do_not(text: str) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(yaml.safe_load(text), json_schema())
