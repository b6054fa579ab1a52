#!/bin/sh
# Checks for what the build needs besides packages of Python: a Python that is new enough and a C
# compiler with the headers of the C library. Root on Debian or Ubuntu gets what is missing installed;
# anybody else is told what to install.
# With the argument `test`: also what tests use where it is there: valgrind for the instruction counts,
# openssl for the certificate of the API server that tests and benchmarks stand in for, and groff,
# which judges the man page.
# With the argument `node`: also what a node of real parts needs (make e2e-node). Only root can run
# that one, so nobody else is told.
set -eu
python=${PYTHON:-python3}
cc=${CC:-cc}

missing=""
need() { missing="$missing $1"; }

# $cc may be a command with options.
# shellcheck disable=SC2086
if ! command -v ${cc%% *} >/dev/null 2>&1; then
    [ -z "${CC-}" ] || { echo "CC is $CC, which is not on PATH; unset it: env -u CC make demo" >&2; exit 1; }
    need gcc
    need libc6-dev
elif ! echo '#include <stdio.h>' | $cc -E - >/dev/null 2>&1; then
    need libc6-dev
fi
command -v "$python" >/dev/null 2>&1 || need "${python##*/}"
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
    echo "missing:$missing; install first, for example: sudo apt-get install$missing" >&2
    exit 1
fi

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }
if ! new_enough "$python"; then
    for other in python3.14 python3.13 python3.12 python3.11 none; do
        ! new_enough "$other" || break
    done
    help="make demo PYTHON=$other"
    [ $other != none ] || help="sudo apt-get install python3.11 && make demo PYTHON=python3.11"
    echo "$python is $("$python" --version 2>&1), and Python 3.11 or newer is needed: $help" >&2
    exit 1
fi
