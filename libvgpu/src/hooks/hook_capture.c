/* Hooks of stream capture. */
#include "compute/cap/throttle.h"
#include "driver/capture.h"
#include "hooks/hook.h"

#define BEGIN_CAPTURE(symbol, arguments, values) \
    VGPU_EXPORT CUresult symbol arguments \
    { \
        NEEDS(symbol); \
        capture_begins(); /* first: no other thread begins to measure from here on */ \
        throttle_before_capture(); \
        CUresult result = real.symbol values; \
        capture_begun(stream, result); \
        return result; \
    }

#define GRAPH_ARGUMENTS \
    (CUstream stream, CUgraph graph, const CUgraphNode *dependencies, \
     const CUgraphEdgeData *edges, size_t count, CUstreamCaptureMode mode)
#define GRAPH_VALUES (stream, graph, dependencies, edges, count, mode)

BEGIN_CAPTURE(cuStreamBeginCapture, (CUstream stream), (stream))
BEGIN_CAPTURE(cuStreamBeginCapture_ptsz, (CUstream stream), (stream))
BEGIN_CAPTURE(cuStreamBeginCapture_v2, (CUstream stream, CUstreamCaptureMode mode), (stream, mode))
BEGIN_CAPTURE(cuStreamBeginCapture_v2_ptsz, (CUstream stream, CUstreamCaptureMode mode),
              (stream, mode))
BEGIN_CAPTURE(cuStreamBeginCaptureToGraph, GRAPH_ARGUMENTS, GRAPH_VALUES)
BEGIN_CAPTURE(cuStreamBeginCaptureToGraph_ptsz, GRAPH_ARGUMENTS, GRAPH_VALUES)

#define END_CAPTURE(symbol) \
    VGPU_EXPORT CUresult symbol(CUstream stream, CUgraph *graph) \
    { \
        NEEDS(symbol); \
        CUresult result = real.symbol(stream, graph); \
        capture_ended(stream, result); \
        return result; \
    }

END_CAPTURE(cuStreamEndCapture)
END_CAPTURE(cuStreamEndCapture_ptsz)
