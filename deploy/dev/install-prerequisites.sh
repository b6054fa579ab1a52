#!/bin/sh
# Checks for what the build needs besides packages of Python: a Python that is new enough, with venv
# and headers, and a C compiler. Root on Debian or Ubuntu gets what is missing installed; anybody else
# is told what to install.
# With the argument `test`: also what tests use where it is there: valgrind for the instruction counts,
# openssl for the certificate of the API server that tests and benchmarks stand in for, and groff,
# which judges the man page.
# With the argument `node`: also what a node of real parts needs (make e2e-node). Only root can run
# that one, so nobody else is told.
set -eu
python=${PYTHON:-python3}

missing=""
need() { missing="$missing $1"; }

command -v cc >/dev/null 2>&1 || need gcc
command -v cc >/dev/null 2>&1 && [ -e /usr/include/stdio.h ] || need libc6-dev
if ! command -v "$python" >/dev/null 2>&1; then
    need python3; need python3-venv; need python3-dev
else
    "$python" -c 'import ensurepip, venv' 2>/dev/null || need python3-venv
    header='import os, sysconfig; assert os.path.exists(sysconfig.get_path("include") + "/Python.h")'
    "$python" -c "$header" 2>/dev/null || need python3-dev
fi
optional=""
if [ -n "${1-}" ]; then
    command -v valgrind >/dev/null 2>&1 || optional="valgrind"
    command -v openssl >/dev/null 2>&1 || optional="$optional openssl"
    command -v groff >/dev/null 2>&1 || optional="$optional groff-base"
fi
if [ "${1-}" = node ]; then
    command -v containerd >/dev/null 2>&1 || optional="$optional containerd"
    command -v runc >/dev/null 2>&1 || optional="$optional runc"
    command -v iptables >/dev/null 2>&1 || optional="$optional iptables"
    command -v ip >/dev/null 2>&1 || optional="$optional iproute2"
    command -v etcd >/dev/null 2>&1 || optional="$optional etcd-server"
    [ -e /usr/lib/cni/bridge ] || optional="$optional containernetworking-plugins"
    command -v skopeo >/dev/null 2>&1 || optional="$optional skopeo"
    command -v promtool >/dev/null 2>&1 || optional="$optional prometheus"
fi

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    if [ -n "$missing$optional" ]; then
        echo "installing:$missing $optional"
        apt-get update -qq
        # shellcheck disable=SC2086
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
            $missing $optional >/dev/null
    fi
elif [ -n "$missing" ]; then
    echo "missing:$missing; install them first, for example: sudo apt-get install$missing" >&2
    exit 1
fi

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "$python is $("$python" --version 2>&1), Python 3.11 or newer is needed;" \
         "name one with: make PYTHON=python3.11 …" >&2
    exit 1
}
