"""Programs that build graphs on a simulated machine."""

#: What every one of them begins with: a stream, and short ways to say common things.
GRAPHS = """
Type, Mode = cuda.CUgraphNodeType, cuda.CUstreamCaptureMode
context = open_context()
spinner = Spinner(1_000_000)
stream = spinner.stream
def new_graph(): return check(cuda.cuGraphCreate(0))
def kernel_params(kernel_ns=1_000_000):
    params = cuda.CUDA_KERNEL_NODE_PARAMS()
    params.func = spinner._function
    params.gridDimX = params.gridDimY = params.gridDimZ = 1
    params.blockDimX = params.blockDimY = params.blockDimZ = 1
    duration = ctypes.c_ulonglong(kernel_ns)
    pointers = (ctypes.c_void_p * 1)(ctypes.addressof(duration))
    params.kernelParams = ctypes.addressof(pointers)
    kept.append((duration, pointers))
    return params
kept = []
def add_kernel(graph, after=(), kernel_ns=1_000_000):
    after = list(after)
    return check(cuda.cuGraphAddKernelNode(graph, after, len(after), kernel_params(kernel_ns)))
def add_empty(graph, after=()):
    return check(cuda.cuGraphAddEmptyNode(graph, list(after), len(after)))
def fill_params(target, value, width=4, height=1, pitch=0, element=1):
    params = cuda.CUDA_MEMSET_NODE_PARAMS()
    params.dst, params.value, params.elementSize = target, value, element
    params.width, params.height, params.pitch = width, height, pitch
    return params
def add_fill(graph, target, value, after=(), **more):
    after = list(after)
    return check(cuda.cuGraphAddMemsetNode(graph, after, len(after),
                                           fill_params(target, value, **more), context))
CALL = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def host_params(function):
    call = CALL(function)
    kept.append(call)
    params = cuda.CUDA_HOST_NODE_PARAMS()
    params.fn = ctypes.cast(call, ctypes.c_void_p).value
    return params
def add_host(graph, function, after=()):
    after = list(after)
    return check(cuda.cuGraphAddHostNode(graph, after, len(after), host_params(function)))
def instantiate(graph, flags=0): return check(cuda.cuGraphInstantiate(graph, flags))
def launch(exec_): check(cuda.cuGraphLaunch(exec_, stream))
def wait(): check(cuda.cuStreamSynchronize(stream))
def bytes_of(address, count):
    back = bytearray(count); check(cuda.cuMemcpyDtoH(back, address, count)); return list(back)
def begin(mode=Mode.CU_STREAM_CAPTURE_MODE_GLOBAL, on=None):
    check(cuda.cuStreamBeginCapture(on or stream, mode))
def end(): return check(cuda.cuStreamEndCapture(stream))
def nodes_of(graph):
    count = check(cuda.cuGraphGetNodes(graph))[1]
    return check(cuda.cuGraphGetNodes(graph, count))[0] if count else []
def types_of(graph): return [int(check(cuda.cuGraphNodeGetType(n))) for n in nodes_of(graph)]
def edges_of(graph):
    count = check(cuda.cuGraphGetEdges(graph))[3]
    if not count: return []
    from_, to, data, count = check(cuda.cuGraphGetEdges(graph, count))
    order = [int(n) for n in nodes_of(graph)]
    return sorted((order.index(int(a)), order.index(int(b))) for a, b in zip(from_, to))
"""
