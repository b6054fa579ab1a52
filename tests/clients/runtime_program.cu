// A program of the runtime API as nvcc makes it, kernels in a fat binary. Prints what it saw as JSON. It knows nothing
// of this project and runs on a real GPU, too. It looks at no result of a kernel.
#include <cstdio>
#include <cstdlib>
#include <vector>

#define MUST(call)                                                                                                     \
    do {                                                                                                               \
        cudaError_t status_ = (call);                                                                                  \
        if (status_ != cudaSuccess) {                                                                                  \
            std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(status_));                                      \
            std::exit(1);                                                                                              \
        }                                                                                                              \
    } while (0)

static const size_t MIB = 1 << 20, PIECE_BYTES = 256 * MIB;
__constant__ float factor;

__global__ void scale(float *values, int count)
{
    int index = blockIdx.x * blockDim.x + threadIdx.x;
    if (index < count)
        values[index] *= factor;
}

static size_t free_bytes(size_t *total)
{
    size_t free;
    MUST(cudaMemGetInfo(&free, total));
    return free;
}

int main()
{
    size_t total, granted = 0;
    float *values, three = 3, there[3] = {7, 8, 9}, back[3] = {};
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    MUST(cudaStreamCreate(&stream));
    MUST(cudaMallocAsync(&values, MIB * sizeof *values, stream));
    MUST(cudaMemcpyToSymbol(factor, &three, sizeof three));
    scale<<<MIB / 256, 256, 0, stream>>>(values, MIB);
    MUST(cudaGetLastError());
    MUST(cudaMemcpyAsync(values, there, sizeof there, cudaMemcpyHostToDevice, stream));
    MUST(cudaMemcpyAsync(back, values, sizeof back, cudaMemcpyDeviceToHost, stream));
    MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    scale<<<1, 1, 0, stream>>>(values, 1);
    MUST(cudaStreamEndCapture(stream, &graph));
    MUST(cudaGraphInstantiate(&executable, graph, 0));
    MUST(cudaGraphLaunch(executable, stream));
    MUST(cudaFreeAsync(values, stream));
    MUST(cudaStreamSynchronize(stream));
    size_t before = free_bytes(&total);
    std::vector<void *> pieces;
    for (void *piece; cudaMalloc(&piece, PIECE_BYTES) == cudaSuccess; granted += PIECE_BYTES)
        pieces.push_back(piece);
    for (void *piece : pieces)
        MUST(cudaFree(piece));
    std::printf("{\"total_bytes\": %zu, \"copied\": [%g, %g, %g], \"free_bytes\": %zu, \"granted_bytes\": %zu, "
                "\"given_back_bytes\": %zu}\n",
                total, back[0], back[1], back[2], before, granted, free_bytes(&total));
    return 0;
}
