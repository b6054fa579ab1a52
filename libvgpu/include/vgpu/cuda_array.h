/*
 * Arrays, mipmapped arrays, textures and surfaces, peers, and copies of other shapes than a row:
 * the part of the CUDA driver API that cuda_api.h leaves out, by the same rules.
 */
#ifndef VGPU_CUDA_ARRAY_H
#define VGPU_CUDA_ARRAY_H

#include "vgpu/cuda_api.h"

#ifndef VGPU_WITH_CUDA_H

/* ---- handles and constants ------------------------------------------------------------------- */

typedef unsigned long long CUtexObject;
typedef unsigned long long CUsurfObject;

enum {
    CUDA_ARRAY3D_LAYERED = 0x01,
    CUDA_ARRAY3D_SURFACE_LDST = 0x02,
    CUDA_ARRAY3D_CUBEMAP = 0x04,
    CUDA_ARRAY3D_TEXTURE_GATHER = 0x08,
    CUDA_ARRAY3D_DEPTH_TEXTURE = 0x10,
    CUDA_ARRAY3D_COLOR_ATTACHMENT = 0x20,
    CUDA_ARRAY3D_SPARSE = 0x40,
    CUDA_ARRAY3D_DEFERRED_MAPPING = 0x80,
    CUDA_ARRAY3D_VIDEO_ENCODE_DECODE = 0x100,
    CU_TRSF_READ_AS_INTEGER = 0x01,
    CU_TRSF_NORMALIZED_COORDINATES = 0x02,
    CU_TRSF_SRGB = 0x10,
    CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION = 0x20,
    CU_TRSF_SEAMLESS_CUBEMAP = 0x40,
};

typedef enum CUaddress_mode_enum {
    CU_TR_ADDRESS_MODE_WRAP = 0x0,
    CU_TR_ADDRESS_MODE_CLAMP = 0x1,
    CU_TR_ADDRESS_MODE_MIRROR = 0x2,
    CU_TR_ADDRESS_MODE_BORDER = 0x3,
} CUaddress_mode;

typedef enum CUfilter_mode_enum {
    CU_TR_FILTER_MODE_POINT = 0x0,
    CU_TR_FILTER_MODE_LINEAR = 0x1,
} CUfilter_mode;

typedef enum CUresourcetype_enum {
    CU_RESOURCE_TYPE_ARRAY = 0x0,
    CU_RESOURCE_TYPE_MIPMAPPED_ARRAY = 0x1,
    CU_RESOURCE_TYPE_LINEAR = 0x2,
    CU_RESOURCE_TYPE_PITCH2D = 0x3,
} CUresourcetype;

typedef enum CUresourceViewFormat_enum {
    CU_RES_VIEW_FORMAT_NONE = 0x0,
    CU_RES_VIEW_FORMAT_UINT_1X8 = 0x1,
    CU_RES_VIEW_FORMAT_UINT_2X8 = 0x2,
    CU_RES_VIEW_FORMAT_UINT_4X8 = 0x3,
    CU_RES_VIEW_FORMAT_SINT_1X8 = 0x4,
    CU_RES_VIEW_FORMAT_SINT_2X8 = 0x5,
    CU_RES_VIEW_FORMAT_SINT_4X8 = 0x6,
    CU_RES_VIEW_FORMAT_UINT_1X16 = 0x7,
    CU_RES_VIEW_FORMAT_UINT_2X16 = 0x8,
    CU_RES_VIEW_FORMAT_UINT_4X16 = 0x9,
    CU_RES_VIEW_FORMAT_SINT_1X16 = 0xa,
    CU_RES_VIEW_FORMAT_SINT_2X16 = 0xb,
    CU_RES_VIEW_FORMAT_SINT_4X16 = 0xc,
    CU_RES_VIEW_FORMAT_UINT_1X32 = 0xd,
    CU_RES_VIEW_FORMAT_UINT_2X32 = 0xe,
    CU_RES_VIEW_FORMAT_UINT_4X32 = 0xf,
    CU_RES_VIEW_FORMAT_SINT_1X32 = 0x10,
    CU_RES_VIEW_FORMAT_SINT_2X32 = 0x11,
    CU_RES_VIEW_FORMAT_SINT_4X32 = 0x12,
    CU_RES_VIEW_FORMAT_FLOAT_1X16 = 0x13,
    CU_RES_VIEW_FORMAT_FLOAT_2X16 = 0x14,
    CU_RES_VIEW_FORMAT_FLOAT_4X16 = 0x15,
    CU_RES_VIEW_FORMAT_FLOAT_1X32 = 0x16,
    CU_RES_VIEW_FORMAT_FLOAT_2X32 = 0x17,
    CU_RES_VIEW_FORMAT_FLOAT_4X32 = 0x18,
    CU_RES_VIEW_FORMAT_UNSIGNED_BC1 = 0x19,
    CU_RES_VIEW_FORMAT_UNSIGNED_BC2 = 0x1a,
    CU_RES_VIEW_FORMAT_UNSIGNED_BC3 = 0x1b,
    CU_RES_VIEW_FORMAT_UNSIGNED_BC4 = 0x1c,
    CU_RES_VIEW_FORMAT_SIGNED_BC4 = 0x1d,
    CU_RES_VIEW_FORMAT_UNSIGNED_BC5 = 0x1e,
    CU_RES_VIEW_FORMAT_SIGNED_BC5 = 0x1f,
    CU_RES_VIEW_FORMAT_UNSIGNED_BC6H = 0x20,
    CU_RES_VIEW_FORMAT_SIGNED_BC6H = 0x21,
    CU_RES_VIEW_FORMAT_UNSIGNED_BC7 = 0x22,
} CUresourceViewFormat;

typedef enum CUmemcpySrcAccessOrder_enum {
    CU_MEMCPY_SRC_ACCESS_ORDER_INVALID = 0x0,
    CU_MEMCPY_SRC_ACCESS_ORDER_STREAM = 0x1,
    CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL = 0x2,
    CU_MEMCPY_SRC_ACCESS_ORDER_ANY = 0x3,
} CUmemcpySrcAccessOrder;

typedef enum CUmemcpy3DOperandType_enum {
    CU_MEMCPY_OPERAND_TYPE_POINTER = 0x1,
    CU_MEMCPY_OPERAND_TYPE_ARRAY = 0x2,
} CUmemcpy3DOperandType;

/* ---- structures ------------------------------------------------------------------------------ */

typedef struct CUDA_MEMCPY3D_st {
    size_t srcXInBytes;
    size_t srcY;
    size_t srcZ;
    size_t srcLOD;
    CUmemorytype srcMemoryType;
    const void *srcHost;
    CUdeviceptr srcDevice;
    CUarray srcArray;
    void *reserved0;
    size_t srcPitch;
    size_t srcHeight;
    size_t dstXInBytes;
    size_t dstY;
    size_t dstZ;
    size_t dstLOD;
    CUmemorytype dstMemoryType;
    void *dstHost;
    CUdeviceptr dstDevice;
    CUarray dstArray;
    void *reserved1;
    size_t dstPitch;
    size_t dstHeight;
    size_t WidthInBytes;
    size_t Height;
    size_t Depth;
} CUDA_MEMCPY3D;

typedef struct CUDA_MEMCPY3D_PEER_st {
    size_t srcXInBytes;
    size_t srcY;
    size_t srcZ;
    size_t srcLOD;
    CUmemorytype srcMemoryType;
    const void *srcHost;
    CUdeviceptr srcDevice;
    CUarray srcArray;
    CUcontext srcContext;
    size_t srcPitch;
    size_t srcHeight;
    size_t dstXInBytes;
    size_t dstY;
    size_t dstZ;
    size_t dstLOD;
    CUmemorytype dstMemoryType;
    void *dstHost;
    CUdeviceptr dstDevice;
    CUarray dstArray;
    CUcontext dstContext;
    size_t dstPitch;
    size_t dstHeight;
    size_t WidthInBytes;
    size_t Height;
    size_t Depth;
} CUDA_MEMCPY3D_PEER;

typedef struct CUDA_MEMCPY2D_v1_st {
    unsigned int srcXInBytes;
    unsigned int srcY;
    CUmemorytype srcMemoryType;
    const void *srcHost;
    CUdeviceptr_v1 srcDevice;
    CUarray srcArray;
    unsigned int srcPitch;
    unsigned int dstXInBytes;
    unsigned int dstY;
    CUmemorytype dstMemoryType;
    void *dstHost;
    CUdeviceptr_v1 dstDevice;
    CUarray dstArray;
    unsigned int dstPitch;
    unsigned int WidthInBytes;
    unsigned int Height;
} CUDA_MEMCPY2D_v1;

typedef struct CUDA_MEMCPY3D_v1_st {
    unsigned int srcXInBytes;
    unsigned int srcY;
    unsigned int srcZ;
    unsigned int srcLOD;
    CUmemorytype srcMemoryType;
    const void *srcHost;
    CUdeviceptr_v1 srcDevice;
    CUarray srcArray;
    void *reserved0;
    unsigned int srcPitch;
    unsigned int srcHeight;
    unsigned int dstXInBytes;
    unsigned int dstY;
    unsigned int dstZ;
    unsigned int dstLOD;
    CUmemorytype dstMemoryType;
    void *dstHost;
    CUdeviceptr_v1 dstDevice;
    CUarray dstArray;
    void *reserved1;
    unsigned int dstPitch;
    unsigned int dstHeight;
    unsigned int WidthInBytes;
    unsigned int Height;
    unsigned int Depth;
} CUDA_MEMCPY3D_v1;

typedef struct CUDA_ARRAY_DESCRIPTOR_v1_st {
    unsigned int Width;
    unsigned int Height;
    CUarray_format Format;
    unsigned int NumChannels;
} CUDA_ARRAY_DESCRIPTOR_v1;

typedef struct CUDA_ARRAY3D_DESCRIPTOR_v1_st {
    unsigned int Width;
    unsigned int Height;
    unsigned int Depth;
    CUarray_format Format;
    unsigned int NumChannels;
    unsigned int Flags;
} CUDA_ARRAY3D_DESCRIPTOR_v1;

typedef struct CUDA_ARRAY_SPARSE_PROPERTIES_st {
    struct {
        unsigned int width;
        unsigned int height;
        unsigned int depth;
    } tileExtent;
    unsigned int miptailFirstLevel;
    unsigned long long miptailSize;
    unsigned int flags;
    unsigned int reserved[4];
} CUDA_ARRAY_SPARSE_PROPERTIES;

typedef struct CUDA_ARRAY_MEMORY_REQUIREMENTS_st {
    size_t size;
    size_t alignment;
    unsigned int reserved[4];
} CUDA_ARRAY_MEMORY_REQUIREMENTS;

typedef struct CUDA_RESOURCE_DESC_st {
    CUresourcetype resType;
    union {
        struct {
            CUarray hArray;
        } array;
        struct {
            CUmipmappedArray hMipmappedArray;
        } mipmap;
        struct {
            CUdeviceptr devPtr;
            CUarray_format format;
            unsigned int numChannels;
            size_t sizeInBytes;
        } linear;
        struct {
            CUdeviceptr devPtr;
            CUarray_format format;
            unsigned int numChannels;
            size_t width;
            size_t height;
            size_t pitchInBytes;
        } pitch2D;
        struct {
            int reserved[32];
        } reserved;
    } res;
    unsigned int flags;
} CUDA_RESOURCE_DESC;

typedef struct CUDA_TEXTURE_DESC_st {
    CUaddress_mode addressMode[3];
    CUfilter_mode filterMode;
    unsigned int flags;
    unsigned int maxAnisotropy;
    CUfilter_mode mipmapFilterMode;
    float mipmapLevelBias;
    float minMipmapLevelClamp;
    float maxMipmapLevelClamp;
    float borderColor[4];
    int reserved[12];
} CUDA_TEXTURE_DESC;

typedef struct CUDA_RESOURCE_VIEW_DESC_st {
    CUresourceViewFormat format;
    size_t width;
    size_t height;
    size_t depth;
    unsigned int firstMipmapLevel;
    unsigned int lastMipmapLevel;
    unsigned int firstLayer;
    unsigned int lastLayer;
    unsigned int reserved[16];
} CUDA_RESOURCE_VIEW_DESC;

typedef struct CUmemcpyAttributes_st {
    CUmemcpySrcAccessOrder srcAccessOrder;
    CUmemLocation srcLocHint;
    CUmemLocation dstLocHint;
    unsigned int flags;
} CUmemcpyAttributes;

typedef struct CUoffset3D_st {
    size_t x;
    size_t y;
    size_t z;
} CUoffset3D;

typedef struct CUextent3D_st {
    size_t width;
    size_t height;
    size_t depth;
} CUextent3D;

typedef struct CUmemcpy3DOperand_st {
    CUmemcpy3DOperandType type;
    union {
        struct {
            CUdeviceptr ptr;
            size_t rowLength;
            size_t layerHeight;
            CUmemLocation locHint;
        } ptr;
        struct {
            CUarray array;
            CUoffset3D offset;
        } array;
    } op;
} CUmemcpy3DOperand;

typedef struct CUDA_MEMCPY3D_BATCH_OP_st {
    CUmemcpy3DOperand src;
    CUmemcpy3DOperand dst;
    CUextent3D extent;
    CUmemcpySrcAccessOrder srcAccessOrder;
    unsigned int flags;
} CUDA_MEMCPY3D_BATCH_OP;

/* ---- tensor maps ----------------------------------------------------------------------------- */

typedef enum {
    CU_TENSOR_MAP_DATA_TYPE_UINT8 = 0,
    CU_TENSOR_MAP_DATA_TYPE_UINT16 = 1,
    CU_TENSOR_MAP_DATA_TYPE_UINT32 = 2,
    CU_TENSOR_MAP_DATA_TYPE_INT32 = 3,
    CU_TENSOR_MAP_DATA_TYPE_UINT64 = 4,
    CU_TENSOR_MAP_DATA_TYPE_INT64 = 5,
    CU_TENSOR_MAP_DATA_TYPE_FLOAT16 = 6,
    CU_TENSOR_MAP_DATA_TYPE_FLOAT32 = 7,
    CU_TENSOR_MAP_DATA_TYPE_FLOAT64 = 8,
    CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 = 9,
    CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ = 10,
    CU_TENSOR_MAP_DATA_TYPE_TFLOAT32 = 11,
    CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ = 12,
    CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B = 13,
    CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN16B = 14,
    CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B = 15,
} CUtensorMapDataType;

typedef enum {
    CU_TENSOR_MAP_INTERLEAVE_NONE = 0,
    CU_TENSOR_MAP_INTERLEAVE_16B = 1,
    CU_TENSOR_MAP_INTERLEAVE_32B = 2,
} CUtensorMapInterleave;

typedef enum {
    CU_TENSOR_MAP_SWIZZLE_NONE = 0,
    CU_TENSOR_MAP_SWIZZLE_32B = 1,
    CU_TENSOR_MAP_SWIZZLE_64B = 2,
    CU_TENSOR_MAP_SWIZZLE_128B = 3,
    CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B = 4,
    CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B_FLIP_8B = 5,
    CU_TENSOR_MAP_SWIZZLE_128B_ATOM_64B = 6,
} CUtensorMapSwizzle;

typedef enum {
    CU_TENSOR_MAP_L2_PROMOTION_NONE = 0,
    CU_TENSOR_MAP_L2_PROMOTION_L2_64B = 1,
    CU_TENSOR_MAP_L2_PROMOTION_L2_128B = 2,
    CU_TENSOR_MAP_L2_PROMOTION_L2_256B = 3,
} CUtensorMapL2promotion;

typedef enum {
    CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE = 0,
    CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA = 1,
} CUtensorMapFloatOOBfill;

/* CUDA 13 aligns it to 128 bytes, CUDA 12 to 64, and cuda-bindings pass it as it comes. */
typedef struct {
    cuuint64_t opaque[16];
} CUtensorMap;

#endif /* VGPU_WITH_CUDA_H */

/* ---- prototypes ------------------------------------------------------------------------------ */

/* arrays */
CUresult cuArrayCreate(CUarray *array, const CUDA_ARRAY_DESCRIPTOR_v1 *form);
CUresult cuArray3DCreate(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR_v1 *form);
CUresult cuArrayGetDescriptor(CUDA_ARRAY_DESCRIPTOR_v1 *form, CUarray array);
CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *form, CUarray array);
CUresult cuArray3DGetDescriptor(CUDA_ARRAY3D_DESCRIPTOR_v1 *form, CUarray array);
CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *form, CUarray array);
CUresult cuArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES *properties, CUarray array);
CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *requirements, CUarray array,
                                      CUdevice device);
CUresult cuArrayGetPlane(CUarray *plane, CUarray array, unsigned int index);
CUresult cuMipmappedArrayGetLevel(CUarray *array, CUmipmappedArray mipmap, unsigned int level);
CUresult cuMipmappedArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES *properties,
                                             CUmipmappedArray mipmap);
CUresult cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *requirements,
                                               CUmipmappedArray mipmap, CUdevice device);

/* textures and surfaces */
CUresult cuTexObjectCreate(CUtexObject *texture, const CUDA_RESOURCE_DESC *resource,
                           const CUDA_TEXTURE_DESC *sampling, const CUDA_RESOURCE_VIEW_DESC *view);
CUresult cuTexObjectDestroy(CUtexObject texture);
CUresult cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC *resource, CUtexObject texture);
CUresult cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC *sampling, CUtexObject texture);
CUresult cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC *view, CUtexObject texture);
CUresult cuSurfObjectCreate(CUsurfObject *surface, const CUDA_RESOURCE_DESC *resource);
CUresult cuSurfObjectDestroy(CUsurfObject surface);
CUresult cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC *resource, CUsurfObject surface);

/* tensor maps */
CUresult cuTensorMapEncodeTiled(CUtensorMap *tensor_map, CUtensorMapDataType type, cuuint32_t rank,
                                void *address, const cuuint64_t *sizes,
                                const cuuint64_t *strides_bytes, const cuuint32_t *box,
                                const cuuint32_t *steps, CUtensorMapInterleave interleave,
                                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                CUtensorMapFloatOOBfill fill);
CUresult cuTensorMapReplaceAddress(CUtensorMap *tensor_map, void *address);

/* peers */
CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags);
CUresult cuCtxDisablePeerAccess(CUcontext peer);
CUresult cuMemcpyPeer(CUdeviceptr target, CUcontext target_context, CUdeviceptr source,
                      CUcontext source_context, size_t bytes);
CUresult cuMemcpyPeerAsync(CUdeviceptr target, CUcontext target_context, CUdeviceptr source,
                           CUcontext source_context, size_t bytes, CUstream stream);
VGPU_TWIN_PTDS(cuMemcpyPeer);
VGPU_TWIN_PTSZ(cuMemcpyPeerAsync);

/* boxes */
CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *box);
CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D *box);
CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *box, CUstream stream);
CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER *box);
CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER *box, CUstream stream);
VGPU_TWIN_PTDS(cuMemcpy2DUnaligned_v2);
VGPU_TWIN_PTDS(cuMemcpy3D_v2);
VGPU_TWIN_PTSZ(cuMemcpy3DAsync_v2);
VGPU_TWIN_PTDS(cuMemcpy3DPeer);
VGPU_TWIN_PTSZ(cuMemcpy3DPeerAsync);

/* rows of arrays */
CUresult cuMemcpyDtoA_v2(CUarray target, size_t offset, CUdeviceptr source, size_t bytes);
CUresult cuMemcpyAtoD_v2(CUdeviceptr target, CUarray source, size_t offset, size_t bytes);
CUresult cuMemcpyHtoA_v2(CUarray target, size_t offset, const void *source, size_t bytes);
CUresult cuMemcpyAtoH_v2(void *target, CUarray source, size_t offset, size_t bytes);
CUresult cuMemcpyAtoA_v2(CUarray target, size_t target_offset, CUarray source, size_t source_offset,
                         size_t bytes);
CUresult cuMemcpyHtoAAsync_v2(CUarray target, size_t offset, const void *source, size_t bytes,
                              CUstream stream);
CUresult cuMemcpyAtoHAsync_v2(void *target, CUarray source, size_t offset, size_t bytes,
                              CUstream stream);
VGPU_TWIN_PTDS(cuMemcpyDtoA_v2);
VGPU_TWIN_PTDS(cuMemcpyAtoD_v2);
VGPU_TWIN_PTDS(cuMemcpyHtoA_v2);
VGPU_TWIN_PTDS(cuMemcpyAtoH_v2);
VGPU_TWIN_PTDS(cuMemcpyAtoA_v2);
VGPU_TWIN_PTSZ(cuMemcpyHtoAAsync_v2);
VGPU_TWIN_PTSZ(cuMemcpyAtoHAsync_v2);

/* batches */
CUresult cuMemcpyBatchAsync(CUdeviceptr *targets, CUdeviceptr *sources, size_t *sizes, size_t count,
                            CUmemcpyAttributes *attributes, size_t *firsts, size_t attribute_count,
                            size_t *failed, CUstream stream);
CUresult cuMemcpyBatchAsync_v2(CUdeviceptr *targets, CUdeviceptr *sources, size_t *sizes,
                               size_t count, CUmemcpyAttributes *attributes, size_t *firsts,
                               size_t attribute_count, CUstream stream);
CUresult cuMemcpy3DBatchAsync(size_t count, CUDA_MEMCPY3D_BATCH_OP *copies, size_t *failed,
                              unsigned long long flags, CUstream stream);
CUresult cuMemcpy3DBatchAsync_v2(size_t count, CUDA_MEMCPY3D_BATCH_OP *copies,
                                 unsigned long long flags, CUstream stream);
VGPU_TWIN_PTSZ(cuMemcpyBatchAsync);
VGPU_TWIN_PTSZ(cuMemcpyBatchAsync_v2);
VGPU_TWIN_PTSZ(cuMemcpy3DBatchAsync);
VGPU_TWIN_PTSZ(cuMemcpy3DBatchAsync_v2);

/* fills of rows */
CUresult cuMemsetD2D8_v2(CUdeviceptr target, size_t pitch, unsigned char value, size_t width,
                         size_t height);
CUresult cuMemsetD2D16_v2(CUdeviceptr target, size_t pitch, unsigned short value, size_t width,
                          size_t height);
CUresult cuMemsetD2D32_v2(CUdeviceptr target, size_t pitch, unsigned int value, size_t width,
                          size_t height);
CUresult cuMemsetD2D8Async(CUdeviceptr target, size_t pitch, unsigned char value, size_t width,
                           size_t height, CUstream stream);
CUresult cuMemsetD2D16Async(CUdeviceptr target, size_t pitch, unsigned short value, size_t width,
                            size_t height, CUstream stream);
CUresult cuMemsetD2D32Async(CUdeviceptr target, size_t pitch, unsigned int value, size_t width,
                            size_t height, CUstream stream);
VGPU_TWIN_PTDS(cuMemsetD2D8_v2);
VGPU_TWIN_PTDS(cuMemsetD2D16_v2);
VGPU_TWIN_PTDS(cuMemsetD2D32_v2);
VGPU_TWIN_PTSZ(cuMemsetD2D8Async);
VGPU_TWIN_PTSZ(cuMemsetD2D16Async);
VGPU_TWIN_PTSZ(cuMemsetD2D32Async);

/* the forms of before CUDA 3.2 */
CUresult cuMemcpyHtoD(CUdeviceptr_v1 target, const void *source, unsigned int bytes);
CUresult cuMemcpyDtoH(void *target, CUdeviceptr_v1 source, unsigned int bytes);
CUresult cuMemcpyDtoD(CUdeviceptr_v1 target, CUdeviceptr_v1 source, unsigned int bytes);
CUresult cuMemcpyHtoA(CUarray target, unsigned int offset, const void *source, unsigned int bytes);
CUresult cuMemcpyAtoH(void *target, CUarray source, unsigned int offset, unsigned int bytes);
CUresult cuMemcpyHtoDAsync(CUdeviceptr_v1 target, const void *source, unsigned int bytes,
                           CUstream stream);
CUresult cuMemcpyDtoHAsync(void *target, CUdeviceptr_v1 source, unsigned int bytes,
                           CUstream stream);
CUresult cuMemcpyDtoDAsync(CUdeviceptr_v1 target, CUdeviceptr_v1 source, unsigned int bytes,
                           CUstream stream);
CUresult cuMemcpyHtoAAsync(CUarray target, unsigned int offset, const void *source,
                           unsigned int bytes, CUstream stream);
CUresult cuMemcpyAtoHAsync(void *target, CUarray source, unsigned int offset, unsigned int bytes,
                           CUstream stream);
CUresult cuMemcpyDtoA(CUarray target, unsigned int offset, CUdeviceptr_v1 source,
                      unsigned int bytes);
CUresult cuMemcpyAtoD(CUdeviceptr_v1 target, CUarray source, unsigned int offset,
                      unsigned int bytes);
CUresult cuMemcpyAtoA(CUarray target, unsigned int target_offset, CUarray source,
                      unsigned int source_offset, unsigned int bytes);
CUresult cuMemsetD8(CUdeviceptr_v1 target, unsigned char value, unsigned int count);
CUresult cuMemsetD16(CUdeviceptr_v1 target, unsigned short value, unsigned int count);
CUresult cuMemsetD32(CUdeviceptr_v1 target, unsigned int value, unsigned int count);
CUresult cuMemsetD2D8(CUdeviceptr_v1 target, unsigned int pitch, unsigned char value,
                      unsigned int width, unsigned int height);
CUresult cuMemsetD2D16(CUdeviceptr_v1 target, unsigned int pitch, unsigned short value,
                       unsigned int width, unsigned int height);
CUresult cuMemsetD2D32(CUdeviceptr_v1 target, unsigned int pitch, unsigned int value,
                       unsigned int width, unsigned int height);
CUresult cuMemcpy2D(const CUDA_MEMCPY2D_v1 *box);
CUresult cuMemcpy2DUnaligned(const CUDA_MEMCPY2D_v1 *box);
CUresult cuMemcpy2DAsync(const CUDA_MEMCPY2D_v1 *box, CUstream stream);
CUresult cuMemcpy3D(const CUDA_MEMCPY3D_v1 *box);
CUresult cuMemcpy3DAsync(const CUDA_MEMCPY3D_v1 *box, CUstream stream);

#endif
