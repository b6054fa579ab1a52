/* Twins for programs whose default stream is per thread: the same with that stream for none.
 * Synchronous copies wait for themselves in either case. */
#include "twins.h"
#include "driver.h"

TWIN(cuMemAllocAsync_ptsz, (CUdeviceptr * address, size_t bytes, CUstream stream),
     cuMemAllocAsync(address, bytes, OWN(stream)))
TWIN(cuMemAllocFromPoolAsync_ptsz,
     (CUdeviceptr * address, size_t bytes, CUmemoryPool pool, CUstream stream),
     cuMemAllocFromPoolAsync(address, bytes, pool, OWN(stream)))
TWIN(cuMemFreeAsync_ptsz, (CUdeviceptr address, CUstream stream),
     cuMemFreeAsync(address, OWN(stream)))
TWIN(cuLaunchKernel_ptsz,
     (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
      unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared_bytes,
      CUstream stream, void **params, void **extra),
     cuLaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes,
                    OWN(stream), params, extra))
TWIN(cuLaunchCooperativeKernel_ptsz,
     (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
      unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared_bytes,
      CUstream stream, void **params),
     cuLaunchCooperativeKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z,
                               shared_bytes, OWN(stream), params))
TWIN(cuLaunchHostFunc_ptsz, (CUstream stream, CUhostFn function, void *argument),
     cuLaunchHostFunc(OWN(stream), function, argument))
TWIN(cuLaunchHostFunc_v2_ptsz,
     (CUstream stream, CUhostFn function, void *argument, unsigned int mode),
     cuLaunchHostFunc_v2(OWN(stream), function, argument, mode))
TWIN(cuStreamSynchronize_ptsz, (CUstream stream), cuStreamSynchronize(OWN(stream)))
TWIN(cuStreamQuery_ptsz, (CUstream stream), cuStreamQuery(OWN(stream)))
TWIN(cuStreamWaitEvent_ptsz, (CUstream stream, CUevent event, unsigned int flags),
     cuStreamWaitEvent(OWN(stream), event, flags))
TWIN(cuStreamAddCallback_ptsz,
     (CUstream stream, CUstreamCallback callback, void *argument, unsigned int flags),
     cuStreamAddCallback(OWN(stream), callback, argument, flags))
TWIN(cuStreamIsCapturing_ptsz, (CUstream stream, CUstreamCaptureStatus *status),
     cuStreamIsCapturing(OWN(stream), status))
TWIN(cuStreamBeginCapture_ptsz, (CUstream stream), cuStreamBeginCapture(OWN(stream)))
TWIN(cuStreamBeginCapture_v2_ptsz, (CUstream stream, CUstreamCaptureMode mode),
     cuStreamBeginCapture_v2(OWN(stream), mode))
TWIN(cuStreamEndCapture_ptsz, (CUstream stream, CUgraph *graph),
     cuStreamEndCapture(OWN(stream), graph))
TWIN(cuStreamGetCaptureInfo_ptsz, (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id),
     cuStreamGetCaptureInfo(OWN(stream), status, id))
TWIN(cuStreamGetCaptureInfo_v2_ptsz,
     (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
      const CUgraphNode **dependencies, size_t *count),
     cuStreamGetCaptureInfo_v2(OWN(stream), status, id, graph, dependencies, count))
TWIN(cuEventRecord_ptsz, (CUevent event, CUstream stream), cuEventRecord(event, OWN(stream)))
TWIN(cuEventRecordWithFlags_ptsz, (CUevent event, CUstream stream, unsigned int flags),
     cuEventRecordWithFlags(event, OWN(stream), flags))
TWIN(cuGraphInstantiateWithParams_ptsz,
     (CUgraphExec * exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params),
     cuGraphInstantiateWithParams(exec, graph, params))
TWIN(cuGraphUpload_ptsz, (CUgraphExec exec, CUstream stream), cuGraphUpload(exec, OWN(stream)))
TWIN(cuGraphLaunch_ptsz, (CUgraphExec exec, CUstream stream), cuGraphLaunch(exec, OWN(stream)))

/* The configuration names the stream itself. */
CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction function, void **params,
                               void **extra)
{
    INVALID_IF(!config);
    CUlaunchConfig own = *config;
    own.hStream = OWN(config->hStream);
    return cuLaunchKernelEx(&own, function, params, extra);
}
