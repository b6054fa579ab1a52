"""What a program may leave behind on a machine: taken before and after, and compared."""

import os
import subprocess
from pathlib import Path

from support.node.cgroups import hierarchies, left_by_nodes

#: Where kubelets, container runtimes and network plugins put files.
_DIRECTORIES = ("/", "/dev", "/etc", "/etc/cni", "/etc/cni/net.d", "/etc/kubernetes",
                "/opt", "/opt/cni", "/run", "/run/netns", "/run/vgpu", "/usr/libexec",
                "/usr/libexec/kubernetes", "/var/lib", "/var/lib/cni", "/var/lib/containerd",
                "/var/lib/kubelet", "/var/lib/vgpu", "/var/log")  # fmt: skip
#: What they set for the whole machine, or for its network.
_SYSCTLS = ("vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
            "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes", "kernel/core_pattern",
            "net/ipv4/ip_forward", "net/ipv4/conf/all/forwarding",
            "net/ipv4/conf/all/route_localnet", "net/ipv4/conf/all/rp_filter",
            "net/bridge/bridge-nf-call-iptables",
            "net/netfilter/nf_conntrack_max")  # fmt: skip


def look() -> set[str]:
    """Returns what there is, each as text."""
    found = {f"mount {line}" for line in Path("/proc/self/mounts").read_text().splitlines()}
    found |= {f"cgroup {path}" for path in left_by_nodes(hierarchies())}
    found |= {f"interface {name}" for name in os.listdir("/sys/class/net")}
    found |= {f"packet filter {rule}" for rule in _filters()}
    found |= {f"setting {name} = {_read(Path('/proc/sys', name))}" for name in _SYSCTLS}
    for directory in filter(os.path.isdir, _DIRECTORIES):
        found |= {f"file {os.path.join(directory, name)}" for name in os.listdir(directory)}
    return found


def processes_naming(text: str) -> list[str]:
    """Returns every process whose command, environment or mounts name ``text``."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdecimal() and int(process.name) != os.getpid():
            files = ("cmdline", "environ", "mountinfo", "cgroup")
            if any(text in _read(process / file) for file in files):
                found.append(f"{process.name} {_read(process / 'cmdline')}")
    return found


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode(errors="replace")
    except OSError:
        return ""


def _filters() -> list[str]:
    """Returns the rules of the packet filter without counters and comments."""
    said = subprocess.run(["iptables-save"], capture_output=True, text=True, check=False).stdout
    return [line.partition(" [")[0] for line in said.splitlines() if not line.startswith("#")]
