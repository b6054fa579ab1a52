"""The README.txt of a support bundle. Pure."""

from collections.abc import Collection, Mapping

#: What each file is; all that may be in a bundle.
FILES = {
    "README.txt": "this page",
    "state.json": "what the node agent says of itself (/v1/state)",
    "config.json": "every value of the config in force, and where it comes from (/v1/config)",
    "config-file.txt": "the config file as it is now",
    "metrics.txt": "one scrape of the agent",
    "doctor.json": "what vgpuctl doctor finds",
    "events.json": "what the agent told pods and the node",
    "ps.json": "rows of vgpuctl ps: every slice and its processes",
    "status.json": "rows of vgpuctl status: every GPU",
    "describe.json": "vgpuctl describe of every slice and GPU",
    "allocations.json": "the directories of the slices: names, sizes and modes of their files",
    "kubelet.json": "how many devices and containers the kubelet has on record, by resource",
    "versions.json": "versions of vgpu, driver, CUDA, kernel, glibc and container runtime",
    "kernel.txt": "lines of the kernel's log with 'NVRM: Xid'",
    "mps-runner-log.txt": "the end of the log of the MPS runner",
}


def readme(there: Collection[str], left_out: Mapping[str, str], made: str, anonymised: bool) -> str:
    """Returns the page.

    Args:
        there: names of the files that are in the bundle.
        left_out: why others are not.
        made: when.
        anonymised: names are replaced.
    """
    width = max(map(len, FILES))
    names = (
        "Names of namespaces, pods, containers and the node that were known are replaced by\n"
        "anon- and the beginning of their SHA-256, the same in every bundle."
        if anonymised
        else "Names of namespaces, pods, containers and the node are in it (--anonymise replaces "
        "them)."
    )
    lines = [
        f"A support bundle of vgpu, made {made} by vgpuctl support-bundle.",
        "",
        *(f"{name:<{width}}  {what}" for name, what in FILES.items() if name in there),
        "",
        names,
        "No environment, token, certificate, annotation, command-line argument, nor content of a",
        "container's memory or files was read into it.",
    ]
    if left_out:
        lines += ["", "Left out, since this user may not read it or nobody answered:", ""]
        lines += [f"{name:<{width}}  {why}" for name, why in left_out.items()]
    return "\n".join(lines) + "\n"
