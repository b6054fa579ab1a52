"""Python programs that the test of a node runs elsewhere: in containers, or as a test run."""

#: What a container has and may do.
LOOK_INSIDE = """
import json, os
def can_write(path):
    try:
        os.close(os.open(path, os.O_RDWR))
        return True
    except OSError:
        return False
def can_make(path):
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT))
        return True
    except OSError:
        return False
lines = [line.split() for line in open("/proc/self/mountinfo")]
print(json.dumps({
    "env": dict(os.environ),
    "uid": os.getuid(),
    "mounts": {line[4]: line[5].split(",")[0] for line in lines},
    "preload": open("/etc/ld.so.preload").read().strip(),
    "shim": any("libvgpu.so" in line for line in open("/proc/1/maps")),
    "limits_writable": can_write("/run/vgpu/limits"),
    "usage_writable": can_write("/run/vgpu/usage"),
    "root_writable": can_make("/made"),
    "shared_memory": os.stat("/dev/shm").st_dev,
}))
"""

#: The driver's answer to a process that wants a context.
SECOND_PROCESS = """
import json
from cuda.bindings import driver
driver.cuInit(0)
code, _ = driver.cuDevicePrimaryCtxRetain(0)
print(json.dumps(int(code)))
"""

#: All that is free, and then one byte; one byte too much, and then all that is free.
TO_THE_BYTE = """
import json, signal, sys
from cuda.bindings import driver
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
driver.cuInit(0)
_, context = driver.cuDevicePrimaryCtxRetain(0)
driver.cuCtxSetCurrent(context)
_, free, total = driver.cuMemGetInfo()
whole, pointer = driver.cuMemAlloc(free)
_, left, _ = driver.cuMemGetInfo()
beyond, _ = driver.cuMemAlloc(1)
driver.cuMemFree(pointer)
too_much, _ = driver.cuMemAlloc(free + 1)
again, _ = driver.cuMemAlloc(free)
print(json.dumps({
    "phase": "bytes", "total": total, "left": left,
    "codes": [int(code) for code in (whole, beyond, too_much, again)],
}), flush=True)
signal.pause()
"""

#: A test run that has a node, in the directory that it is told.
MAKE_A_NODE = """
import signal, sys
from pathlib import Path
from support.node.host import NodeHost
host = NodeHost(Path(sys.argv[1]))
host.start_process("sleeper", ["sleep", "1000"])
print("made", flush=True)
signal.pause()
"""
