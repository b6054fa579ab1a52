/*
 * Shares 64 MiB with another process, for the figure `silicon`: argument ipc or posix (a descriptor). Prints
 * by how many MiB the figures of all processes, by NVML's list, grow when the other process opens them, and
 * by how many the figure of the whole GPU.
 *
 * The other process is forked before the driver is there; a socket takes handle, descriptor and orders.
 */
#include <dlfcn.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "client.h"
#include "vgpu/cuda_vmm.h"

#define MIB ((size_t)1 << 20)
#define PIECE_BYTES (64 * MIB)
#define MOST_PROCESSES 64

static const char ptx[] = CLIENT_PTX_BEGIN CLIENT_PTX_SPIN;
static const CUmemAllocationProp kind = {
    .type = CU_MEM_ALLOCATION_TYPE_PINNED,
    .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
};

/* --- the socket ------------------------------------------------------------------------------- */

static void hand_over(int socket, CUipcMemHandle *handle, int *descriptor, bool is_sent)
{
    char room[CMSG_SPACE(sizeof *descriptor)] = {0};
    struct iovec part = {handle, sizeof *handle};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    *head = (struct cmsghdr){CMSG_LEN(sizeof *descriptor), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(head), descriptor, sizeof *descriptor);
    if ((is_sent ? sendmsg(socket, &message, 0) : recvmsg(socket, &message, 0)) <= 0)
        exit(1);
    memcpy(descriptor, CMSG_DATA(head), sizeof *descriptor);
}

static void say(int socket)
{
    if (write(socket, "", 1) != 1)
        exit(1);
}

static void wait_for_word(int socket)
{
    char word;
    if (read(socket, &word, 1) != 1)
        exit(1);
}

/* --- NVML ------------------------------------------------------------------------------------- */

struct nvml_process { /* of calls _v2 */
    unsigned int pid;
    unsigned long long used;
    unsigned int gpu_instance, compute_instance;
};
struct figures {
    uint64_t processes_bytes, gpu_bytes;
};

static struct figures look(void)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW), *device;
    int (*begin)(void) = dlsym(library, "nvmlInit_v2");
    int (*get)(unsigned int, void **) = dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
    int (*info)(void *, unsigned long long[3]) = dlsym(library, "nvmlDeviceGetMemoryInfo");
    int (*list)(void *, unsigned int *, struct nvml_process *) =
        dlsym(library, "nvmlDeviceGetComputeRunningProcesses_v2");
    struct nvml_process processes[MOST_PROCESSES];
    unsigned long long memory[3];
    unsigned int count = MOST_PROCESSES;
    MUST(begin());
    MUST(get(0, &device));
    MUST(info(device, memory));
    MUST(list(device, &count, processes));
    struct figures found = {0, memory[2]};
    while (count-- > 0)
        found.processes_bytes += processes[count].used;
    return found;
}

/* --- both processes --------------------------------------------------------------------------- */

static void map(CUmemGenericAllocationHandle piece)
{
    CUmemAccessDesc access = {.location = kind.location,
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr address;
    MUST(cuMemAddressReserve(&address, PIECE_BYTES, 0, 0, 0));
    MUST(cuMemMap(address, PIECE_BYTES, 0, piece, 0));
    MUST(cuMemSetAccess(address, PIECE_BYTES, &access, 1));
}

static void import_it(int socket, bool is_posix)
{
    CUmemGenericAllocationHandle piece;
    CUipcMemHandle handle;
    CUdeviceptr address;
    int descriptor = 0;
    client_load(ptx);
    say(socket);
    hand_over(socket, &handle, &descriptor, false);
    if (is_posix) {
        MUST(cuMemImportFromShareableHandle(&piece, (void *)(intptr_t)descriptor,
                                            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
        map(piece);
    } else {
        MUST(cuIpcOpenMemHandle_v2(&address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    }
    say(socket);
    wait_for_word(socket);
}

static void export_it(int socket, bool is_posix)
{
    CUmemGenericAllocationHandle piece;
    CUipcMemHandle handle = {0};
    CUdeviceptr address;
    int descriptor = STDIN_FILENO; /* some descriptor goes along */
    client_load(ptx);
    if (is_posix) {
        MUST(cuMemCreate(&piece, PIECE_BYTES, &kind, 0));
        map(piece);
        MUST(cuMemExportToShareableHandle(&descriptor, piece,
                                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    } else {
        MUST(cuMemAlloc_v2(&address, PIECE_BYTES));
        MUST(cuIpcGetMemHandle(&handle, address));
    }
    wait_for_word(socket); /* the other one has its context */
    struct figures before = look();
    hand_over(socket, &handle, &descriptor, true);
    wait_for_word(socket);
    struct figures after = look();
    printf("%.1f\n%.1f\n", (double)(after.processes_bytes - before.processes_bytes) / MIB,
           (double)(after.gpu_bytes - before.gpu_bytes) / MIB);
    say(socket);
}

int main(int count, char **arguments)
{
    int ends[2];
    if (count < 2 || socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
        return 2;
    bool is_posix = strcmp(arguments[1], "posix") == 0;
    pid_t child = fork();
    close(ends[child != 0]);
    (child == 0 ? import_it : export_it)(ends[child == 0], is_posix);
    waitpid(child, NULL, 0);
    return 0;
}
