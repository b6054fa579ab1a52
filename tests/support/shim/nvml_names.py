"""Which of NVML's functions show memory, processes or utilisation, read from NVIDIA's header.

A function that reads something shows them when its name matches `NAME`, or when a structure that it
fills has a field that matches `FIELD`; but for those in `OTHERWISE`.
"""

import re

READER = re.compile(r"Get|Sample|Query")
NAME = re.compile(
    r"Memory|MemSize|BAR1|FbUsage|FbReservation|FBC|Framebuffer|HeapSize|StateSize"
    r"|Process|Accounting|Utilization|Pstates|Sessions|FieldValues"
    r"|GetSamples|SampleGet|MetricsGet"
)
FIELD = re.compile(
    r"\b(?:pid|used\w*|currentUsed|bar1\w+|memory|memorySizeMB|maxMemoryUsage"
    r"|\w*[uU]til|\w*[uU]tilization)\b"
)
#: They match, and show something else.
OTHERWISE = {
    "nvmlDeviceGetAccountingBufferSize": "how many processes are remembered",
    "nvmlDeviceGetAccountingMode": "whether processes are remembered",
    "nvmlVgpuInstanceGetAccountingMode": "whether processes are remembered",
    "nvmlDeviceGetMemoryAffinity": "NUMA nodes near the GPU",
    "nvmlDeviceGetMemoryBusWidth": "width of the memory's bus",
    "nvmlDeviceGetMemoryErrorCounter": "errors of the memory",
    "nvmlDeviceGetUnrepairableMemoryFlag_v1": "whether the memory is broken",
    "nvmlDeviceGetSupportedMemoryClocks": "clocks",
    "nvmlDeviceGetNvLinkUtilizationControl": "what the counters of a link count",
    "nvmlDeviceGetNvLinkUtilizationCounter": "traffic of a link",
}
_FUNCTION = re.compile(r"\bDECLDIR\s+(?:char\s*\*\s*)?(nvml\w+)\s*\(([^;]*)\)\s*;")
_STRUCTURE = re.compile(r"typedef (?:struct|union)\s*\w*\s*\{(.*?)\}\s*(\w+)\s*;", re.S)


def functions(header: str) -> dict[str, str]:
    """Returns the parameters of every function that the text of ``nvml.h`` declares, by name."""
    return dict(_FUNCTION.findall(header))


def functions_that_show(header: str) -> set[str]:
    """Returns the functions that show memory, processes or utilisation."""
    return functions_that_match(header) - OTHERWISE.keys()


def functions_that_match(header: str) -> set[str]:
    """Returns the functions that match the patterns, those of `OTHERWISE` too."""
    plain = re.sub(r"/\*.*?\*/|//[^\n]*", "", header, flags=re.S)
    structures = {name: body for body, name in _STRUCTURE.findall(plain)}
    for old, new in re.findall(r"typedef (\w+) (\w+);", plain):
        if old in structures:
            structures[new] = structures[old]

    def fields(parameters: str, depth: int = 4) -> str:
        """Returns the parameters' structures, and those in them, as one text."""
        inside = [
            structures[t] for t in re.findall(r"\bnvml\w+_t\b", parameters) if t in structures
        ]
        return " ".join(inside + [fields(text, depth - 1) for text in inside if depth])

    return {
        name
        for name, parameters in functions(plain).items()
        if READER.search(name)
        and (NAME.search(name) or FIELD.search(re.sub(r"\bnvml\w+\b", "", fields(parameters))))
    }
