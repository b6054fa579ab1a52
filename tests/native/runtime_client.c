/* A program of the runtime API (cudart), as nvcc makes them: its kernel lies in a fat binary that registers itself
 * before `main`. It is linked with NVIDIA's library, static or shared, and declares what it uses of it.
 *
 * Goes once through what such programs use, checks what it gets, and prints what it saw as JSON. With the handle
 * of an IPC piece as argument it is the process that opens that one. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (1ul << 20)
#define KERNEL_NS 5000000ull
#define RESETS 20
#define QUEUED 120

/* --- cuda_runtime_api.h and crt/host_runtime.h, as far as they are used --- */

struct dimensions {
    unsigned int x, y, z;
};
struct ipc_handle {
    unsigned char bytes[64];
};
enum { DEVICE_TO_HOST = 2, CAPTURE_GLOBAL = 0, IPC_LAZY_PEER = 1, ATTACH_GLOBAL = 1 };

void **__cudaRegisterFatBinary(void *wrapper);
void __cudaRegisterFatBinaryEnd(void **binary);
void __cudaRegisterFunction(void **binary, const void *host, char *device, const char *name,
                            int threads, void *tid, void *bid, struct dimensions *block,
                            struct dimensions *grid, int *warp);
int cudaGetDeviceCount(int *count);
int cudaSetDevice(int device);
int cudaRuntimeGetVersion(int *version);
int cudaDriverGetVersion(int *version);
int cudaMalloc(void **pointer, size_t bytes);
int cudaFree(void *pointer);
int cudaMallocManaged(void **pointer, size_t bytes, unsigned int flags);
int cudaHostAlloc(void **pointer, size_t bytes, unsigned int flags);
int cudaMallocAsync(void **pointer, size_t bytes, void *stream);
int cudaFreeAsync(void *pointer, void *stream);
int cudaMemset(void *pointer, int value, size_t bytes);
int cudaMemcpy(void *to, const void *from, size_t bytes, int kind);
int cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes);
int cudaStreamCreate(void **stream);
int cudaStreamDestroy(void *stream);
int cudaStreamSynchronize(void *stream);
int cudaEventCreate(void **event);
int cudaEventRecord(void *event, void *stream);
int cudaEventSynchronize(void *event);
int cudaEventElapsedTime(float *ms, void *begin, void *end);
int cudaLaunchKernel(const void *function, struct dimensions grid, struct dimensions block,
                     void **arguments, size_t shared_bytes, void *stream);
int cudaStreamBeginCapture(void *stream, int mode);
int cudaStreamEndCapture(void *stream, void **graph);
int cudaGraphInstantiateWithFlags(void **exec, void *graph, unsigned long long flags);
int cudaGraphLaunch(void *exec, void *stream);
int cudaGraphExecDestroy(void *exec);
int cudaIpcGetMemHandle(struct ipc_handle *handle, void *pointer);
int cudaIpcOpenMemHandle(void **pointer, struct ipc_handle handle, unsigned int flags);
int cudaDeviceSynchronize(void);
int cudaDeviceReset(void);

/* --- the fat binary --- */

static const char ptx[] = "//vgpu_sim_first_launch_mib=64\n"
                          ".version 7.0\n.target sm_70\n.address_size 64\n"
                          ".visible .entry spin_ns(.param .u64 duration_ns)\n{\n"
                          "    .reg .pred %p;\n    .reg .u64 %begin, %now, %wanted;\n"
                          "    ld.param.u64 %wanted, [duration_ns];\n"
                          "    mov.u64 %begin, %globaltimer;\nagain:\n"
                          "    mov.u64 %now, %globaltimer;\n    sub.u64 %now, %now, %begin;\n"
                          "    setp.lt.u64 %p, %now, %wanted;\n    @%p bra again;\n    ret;\n}\n";

static struct {
    uint32_t magic;
    uint16_t version, header_bytes;
    uint64_t entries_bytes;
    uint16_t kind, entry_version;
    uint32_t entry_header_bytes;
    uint64_t payload_bytes;
    uint32_t packed_bytes, reserved0;
    uint16_t minor, major;
    uint32_t architecture, name_offset, name_bytes;
    uint64_t flags, reserved1, unpacked_bytes;
    char payload[(sizeof ptx + 7) / 8 * 8];
} bundle = {.magic = 0xba55ed50,
            .version = 1,
            .header_bytes = 16,
            .entries_bytes = 64 + sizeof bundle.payload,
            .kind = 1,
            .entry_version = 0x101,
            .entry_header_bytes = 64,
            .payload_bytes = sizeof bundle.payload,
            .minor = 0,
            .major = 7,
            .architecture = 70,
            .flags = 0x11};

static struct {
    uint32_t magic, version;
    const void *bundle;
    void *unused;
} wrapper = {0x466243b1, 1, &bundle, NULL};

/* What a launch names; never called. */
static void spin(void)
{
}

__attribute__((constructor)) static void register_kernel(void)
{
    memcpy(bundle.payload, ptx, sizeof ptx);
    void **binary = __cudaRegisterFatBinary(&wrapper);
    __cudaRegisterFunction(binary, (const void *)spin, "spin_ns", "spin_ns", -1, NULL, NULL, NULL,
                           NULL, NULL);
    /* CUDA 10.1 and newer; a name that the library of that version may lack is looked up */
    void (*end)(void **) = dlsym(RTLD_DEFAULT, "__cudaRegisterFatBinaryEnd");
    (end ? end : __cudaRegisterFatBinaryEnd)(binary);
}

/* --- the program --- */

#define OK(call) ok(call, #call, __LINE__)

static void ok(int error, const char *call, int line)
{
    if (error == 0)
        return;
    fprintf(stderr, "runtime_client.c:%d: %s answered %d\n", line, call, error);
    exit(1);
}

static int launch(void *stream, uint64_t duration_ns)
{
    void *arguments[] = {&duration_ns};
    struct dimensions one = {1, 1, 1};
    return cudaLaunchKernel((const void *)spin, one, one, arguments, 0, stream);
}

static float timed_ms(void *stream, void *exec)
{
    void *begin, *end;
    float ms;
    OK(cudaEventCreate(&begin));
    OK(cudaEventCreate(&end));
    OK(cudaEventRecord(begin, stream));
    OK(exec ? cudaGraphLaunch(exec, stream) : launch(stream, KERNEL_NS));
    OK(cudaEventRecord(end, stream));
    OK(cudaEventSynchronize(end));
    OK(cudaEventElapsedTime(&ms, begin, end));
    return ms;
}

static void *captured(void *stream)
{
    void *graph, *exec;
    OK(cudaStreamBeginCapture(stream, CAPTURE_GLOBAL));
    OK(launch(stream, KERNEL_NS));
    OK(launch(stream, KERNEL_NS));
    OK(cudaStreamEndCapture(stream, &graph));
    OK(cudaGraphInstantiateWithFlags(&exec, graph, 0));
    return exec;
}

static bool holds(const void *pointer, unsigned char value)
{
    unsigned char bytes[256];
    OK(cudaMemcpy(bytes, pointer, sizeof bytes, DEVICE_TO_HOST));
    return bytes[0] == value && memcmp(bytes, bytes + 1, sizeof bytes - 1) == 0;
}

static bool is_shared_with_another(const char *program, void *piece)
{
    struct ipc_handle handle;
    char text[2 * sizeof handle + 1];
    int status;
    OK(cudaIpcGetMemHandle(&handle, piece));
    for (size_t i = 0; i < sizeof handle; i++)
        sprintf(text + 2 * i, "%02x", handle.bytes[i]);
    pid_t child = fork();
    if (child == 0)
        execl(program, program, text, NULL);
    waitpid(child, &status, 0);
    return status == 0;
}

static int open_piece(const char *text)
{
    struct ipc_handle handle;
    void *piece;
    for (size_t i = 0; i < sizeof handle; i++)
        sscanf(text + 2 * i, "%2hhx", &handle.bytes[i]);
    OK(cudaIpcOpenMemHandle(&piece, handle, IPC_LAZY_PEER));
    return !holds(piece, 7);
}

/* No call may be under way while the device is reset, says NVIDIA. Work may. */
static void *queue_work(void *nothing)
{
    void *streams[3];
    for (int i = 0; i < 3; i++)
        OK(cudaStreamCreate(&streams[i]));
    for (int i = 0; i < QUEUED; i++)
        OK(launch(i % 4 < 3 ? streams[i % 4] : NULL, 10000));
    return nothing;
}

static void reset_with_work_queued(void)
{
    for (int i = 0; i < RESETS; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, queue_work, NULL);
        pthread_join(thread, NULL);
        OK(cudaDeviceReset());
    }
}

static size_t used_bytes(void)
{
    size_t free_bytes, total_bytes;
    OK(cudaMemGetInfo(&free_bytes, &total_bytes));
    return total_bytes - free_bytes;
}

int main(int argument_count, char **arguments)
{
    if (argument_count > 1)
        return open_piece(arguments[1]);
    int count, runtime, driver;
    void *piece, *other, *stream, *exec;
    OK(cudaRuntimeGetVersion(&runtime));
    OK(cudaDriverGetVersion(&driver));
    OK(cudaGetDeviceCount(&count));
    printf("{\"runtime\": %d, \"driver\": %d, \"count\": %d", runtime, driver, count);

    OK(cudaMalloc(&piece, 4 * MIB));
    OK(cudaMemset(piece, 7, 4 * MIB));
    printf(", \"is_filled\": %d", holds(piece, 7));
    printf(", \"is_shared\": %d", is_shared_with_another(arguments[0], piece));
    printf(", \"before_launch_bytes\": %zu", used_bytes());

    OK(cudaStreamCreate(&stream));
    exec = captured(stream);
    printf(", \"launched_ms\": %f", timed_ms(stream, NULL));
    printf(", \"graph_ms\": %f", timed_ms(stream, exec));
    OK(cudaMallocAsync(&other, 3 * MIB, stream));
    OK(cudaFreeAsync(other, stream));
    OK(cudaStreamSynchronize(stream));
    printf(", \"launched_bytes\": %zu", used_bytes());
    OK(cudaGraphExecDestroy(exec));
    OK(cudaStreamDestroy(stream));
    OK(cudaMallocManaged(&other, MIB, ATTACH_GLOBAL));
    OK(cudaHostAlloc(&other, MIB, 0));
    for (int device = count - 1; device >= 0; device--) {
        OK(cudaSetDevice(device));
        OK(cudaMalloc(&other, MIB));
        OK(cudaMemset(other, device + 1, MIB));
        OK(holds(other, (unsigned char)(device + 1)) ? 0 : 1);
    }
    OK(cudaDeviceSynchronize());

    OK(cudaDeviceReset());
    OK(cudaMalloc(&piece, 4 * MIB));
    printf(", \"reset_bytes\": %zu", used_bytes());
    reset_with_work_queued();
    OK(cudaMalloc(&piece, 4 * MIB));
    OK(launch(NULL, 1000));
    OK(cudaDeviceSynchronize());
    printf(", \"end_bytes\": %zu}\n", used_bytes());
    return 0;
}
