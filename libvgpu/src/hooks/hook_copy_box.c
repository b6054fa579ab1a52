/* Hooks of copies of boxes, in two and three dimensions: as in hook_copy.c. */
#include "hooks/hook_copy.h"

#include <stddef.h>

static const char box_copy;

/* What a box says of itself, in whichever of its forms. */
struct copy_box {
    struct copy_side target;
    struct copy_side source;
    uint64_t bytes;
};

#define SIDE(box, type, address) ((struct copy_side){(box)->type, (box)->address})
#define READ_BOX(box, depth) \
    ((box) == NULL ? (struct copy_box){.bytes = 0} \
                   : (struct copy_box){SIDE(box, dstMemoryType, dstDevice), \
                                       SIDE(box, srcMemoryType, srcDevice), \
                                       (uint64_t)(box)->WidthInBytes * (box)->Height * (depth)})
#define FLAT(box) READ_BOX(box, 1)
#define DEEP(box) READ_BOX(box, (box)->Depth)

static CUresult box_ask(struct launch *launch, const void *field, struct copy_box box,
                        CUstream stream)
{
    return copy_ask(launch, field, &box_copy, box.target, box.source, box.bytes, stream);
}

#define BOX_COPY(symbol, form, read, per_thread) \
    VGPU_EXPORT CUresult symbol(const form *box) \
    { \
        LAUNCH(gate_is_open(), \
               box_ask(&launch, &real.symbol, read(box), launch_stream(NULL, per_thread)), \
               real.symbol(box)); \
    }

#define BOX_COPY_ASYNC(symbol, form, read, per_thread) \
    VGPU_EXPORT CUresult symbol(const form *box, CUstream stream) \
    { \
        LAUNCH(gate_is_open(), \
               box_ask(&launch, &real.symbol, read(box), launch_stream(stream, per_thread)), \
               real.symbol(box, stream)); \
    }

BOX_COPY(cuMemcpy2D, CUDA_MEMCPY2D_v1, FLAT, 0)
BOX_COPY(cuMemcpy2D_v2, CUDA_MEMCPY2D, FLAT, 0)
BOX_COPY(cuMemcpy2D_v2_ptds, CUDA_MEMCPY2D, FLAT, 1)
BOX_COPY(cuMemcpy2DUnaligned, CUDA_MEMCPY2D_v1, FLAT, 0)
BOX_COPY(cuMemcpy2DUnaligned_v2, CUDA_MEMCPY2D, FLAT, 0)
BOX_COPY(cuMemcpy2DUnaligned_v2_ptds, CUDA_MEMCPY2D, FLAT, 1)
BOX_COPY(cuMemcpy3D, CUDA_MEMCPY3D_v1, DEEP, 0)
BOX_COPY(cuMemcpy3D_v2, CUDA_MEMCPY3D, DEEP, 0)
BOX_COPY(cuMemcpy3D_v2_ptds, CUDA_MEMCPY3D, DEEP, 1)
BOX_COPY(cuMemcpy3DPeer, CUDA_MEMCPY3D_PEER, DEEP, 0)
BOX_COPY(cuMemcpy3DPeer_ptds, CUDA_MEMCPY3D_PEER, DEEP, 1)
BOX_COPY_ASYNC(cuMemcpy2DAsync, CUDA_MEMCPY2D_v1, FLAT, 0)
BOX_COPY_ASYNC(cuMemcpy2DAsync_v2, CUDA_MEMCPY2D, FLAT, 0)
BOX_COPY_ASYNC(cuMemcpy2DAsync_v2_ptsz, CUDA_MEMCPY2D, FLAT, 1)
BOX_COPY_ASYNC(cuMemcpy3DAsync, CUDA_MEMCPY3D_v1, DEEP, 0)
BOX_COPY_ASYNC(cuMemcpy3DAsync_v2, CUDA_MEMCPY3D, DEEP, 0)
BOX_COPY_ASYNC(cuMemcpy3DAsync_v2_ptsz, CUDA_MEMCPY3D, DEEP, 1)
BOX_COPY_ASYNC(cuMemcpy3DPeerAsync, CUDA_MEMCPY3D_PEER, DEEP, 0)
BOX_COPY_ASYNC(cuMemcpy3DPeerAsync_ptsz, CUDA_MEMCPY3D_PEER, DEEP, 1)
