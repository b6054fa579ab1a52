#!/bin/sh
# Writes the stubs into a folder: sh deviceplugin/kubelet/protos/generate.sh python3.11 FOLDER
#
# With the oldest generator that has a wheel for Python 3.11, in an environment of its own: grpcio and
# protobuf take what an older generator wrote, and refuse what a newer one did. So the agent runs with
# whatever grpcio a node's image has, from this release on (pyproject.toml has the floors).
set -eu
generator=grpcio-tools==1.49.1
python=$(command -v "$1")
case $python in /*) ;; *) python=$PWD/$python ;; esac
folder=$(cd "$2" && pwd)
protos=deviceplugin/kubelet/protos
cd "$(dirname "$0")/../../.." # so that the stubs import each other by their full names
"$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || {
    echo "$generator has wheels up to Python 3.11, and $python is another; name a python3.11" >&2
    exit 1
}
venv=$(mktemp -d)
trap 'rm -rf "$venv"' EXIT
"$python" -m venv "$venv"
# setuptools: that generator finds its own .proto files through pkg_resources.
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$generator" "setuptools<81"
"$venv/bin/python" -m grpc_tools.protoc -I. --python_out="$venv" --pyi_out="$venv" \
    --grpc_python_out="$venv" $protos/*.proto
for stub in "$venv"/$protos/*; do
    if grep -q "runtime_version\|GRPC_GENERATED_VERSION" "$stub"; then
        echo "${stub##*/} was written by a newer generator than $generator" >&2
        exit 1
    fi
done
cp "$venv"/$protos/* "$folder"
