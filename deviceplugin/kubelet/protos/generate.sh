#!/bin/sh
# Writes the stubs beside the .proto files: sh deviceplugin/kubelet/protos/generate.sh [PYTHON]
# Needs grpcio-tools. Its version becomes the floor of grpcio and protobuf in pyproject.toml.
set -eu
python=$(command -v "${1:-python3}")
case $python in /*) ;; *) python=$PWD/$python ;; esac
cd "$(dirname "$0")/../../.." # so that the stubs import each other by their full names
exec "$python" -m grpc_tools.protoc -I. --python_out=. --pyi_out=. --grpc_python_out=. \
    deviceplugin/kubelet/protos/deviceplugin_v1beta1.proto \
    deviceplugin/kubelet/protos/podresources_v1.proto
