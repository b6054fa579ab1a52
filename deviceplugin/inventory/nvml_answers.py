"""How answers of NVML's bindings are read: what is unknown, what fails, and text."""

from typing import Any

#: NVML's numbers of errors.
INVALID_ARGUMENT, NOT_SUPPORTED, NOT_FOUND, FUNCTION_NOT_FOUND = 2, 3, 6, 13
NO_DATA = 21
#: Of a question that this GPU or driver has no answer to: nothing is wrong with either.
CANNOT_TELL = frozenset({NOT_SUPPORTED, FUNCTION_NOT_FOUND, NO_DATA})
GPU_IS_LOST, RESET_REQUIRED, LIB_RM_VERSION_MISMATCH = 15, 16, 18

#: Of a list of processes. `_v2` has the same form on every driver. Some drivers lack `_v3`, and
#: others write longer entries under that name than the bindings read.
_LIST_VERSIONS = ("_v2", "_v3")


def ask(pynvml: Any, function: str, *arguments: Any) -> Any:
    """Returns what NVML says, None where it or the bindings cannot say it.

    Raises:
        NVMLError: the GPU is lost or needs a reset.
    """
    try:
        return getattr(pynvml, function)(*arguments)
    except AttributeError:
        return None
    except pynvml.NVMLError as error:
        if error_code(error) in (GPU_IS_LOST, RESET_REQUIRED):
            raise
        return None


def list_processes(pynvml: Any, kind: str, handle: Any) -> list[Any]:
    """Returns one of NVML's lists of processes, empty where this driver has none.

    Args:
        pynvml: the bindings.
        kind: ``Compute``, ``Graphics`` or ``MPSCompute``.
        handle: of the GPU.

    Raises:
        NVMLError: the GPU does not answer.
    """
    for version in _LIST_VERSIONS:
        call = getattr(pynvml, f"nvmlDeviceGet{kind}RunningProcesses{version}", None)
        if call is None:
            continue
        try:
            return list(call(handle))
        except (pynvml.NVMLError_FunctionNotFound, pynvml.NVMLError_NotSupported):
            continue
        except pynvml.NVMLError_InsufficientSize:
            return list(call(handle))  # more came between its two calls; it asks for the size again
    return []


def told(pynvml: Any, function: str, *arguments: Any) -> Any:
    """Returns what NVML says, None where it has no answer for this GPU.

    Raises:
        NVMLError: it fails.
    """
    try:
        return getattr(pynvml, function)(*arguments)
    except AttributeError:
        return None
    except pynvml.NVMLError as error:
        if error_code(error) not in CANNOT_TELL:
            raise
        return None


def memory_bytes(pynvml: Any, handle: Any) -> int:
    """Returns how much memory a GPU or MIG device has, 0 where NVML does not tell.

    Raises:
        NVMLError: it fails.
    """
    said = told(pynvml, "nvmlDeviceGetMemoryInfo", handle)
    return 0 if said is None or said.total is None else int(said.total)


def error_code(error: Exception) -> int | None:
    """Returns NVML's number of an error of its bindings."""
    value = getattr(error, "value", None)
    return value if isinstance(value, int) else None


def text(value: Any) -> str:
    """Returns a string of NVML, which older bindings give as bytes."""
    return value.decode() if isinstance(value, bytes) else str(value)
