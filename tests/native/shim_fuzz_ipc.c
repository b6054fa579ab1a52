/* Memory that goes to and comes from other processes, which die now and then. They are forked
 * before CUDA is there, and do one thing for each message. */
#include <errno.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shim_fuzz.h"

#define HELPERS 5
#define KEPT 6

enum wish { OPEN, CLOSE, IMPORT, LET_GO, EXPORT, FREE, END };

struct message {
    enum wish wish;
    uint32_t index;
    int result;
    CUipcMemHandle handle;
};

static int lines[HELPERS];
static pid_t helpers[HELPERS];
static int alive; /* the helper that is spoken to; the others behind it wait */
static CUdeviceptr opened[4];

static void tell(int line, const struct message *message, int descriptor)
{
    struct iovec part = {(void *)message, sizeof *message};
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {.head = {.cmsg_len = CMSG_LEN(sizeof(int)),
                          .cmsg_level = SOL_SOCKET,
                          .cmsg_type = SCM_RIGHTS}};
    struct msghdr whole = {.msg_iov = &part, .msg_iovlen = 1};
    memcpy(CMSG_DATA(&control.head), &descriptor, sizeof descriptor);
    if (descriptor >= 0) {
        whole.msg_control = &control;
        whole.msg_controllen = sizeof control.room;
    }
    if (sendmsg(line, &whole, 0) < 0)
        fuzz_fail("a helper is gone");
}

static bool hear(int line, struct message *message, int *descriptor)
{
    char control[CMSG_SPACE(sizeof(int))];
    struct iovec part = {message, sizeof *message};
    struct msghdr whole = {.msg_iov = &part,
                           .msg_iovlen = 1,
                           .msg_control = control,
                           .msg_controllen = sizeof control};
    *descriptor = -1;
    if (recvmsg(line, &whole, 0) != sizeof *message)
        return false;
    if (CMSG_FIRSTHDR(&whole) != NULL)
        memcpy(descriptor, CMSG_DATA(CMSG_FIRSTHDR(&whole)), sizeof *descriptor);
    return true;
}

/* ---- the helper ---- */

static int import(int descriptor, CUmemGenericAllocationHandle *handle, CUdeviceptr address)
{
    int result = cuMemImportFromShareableHandle(handle, (void *)(intptr_t)descriptor,
                                                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    if (result == CUDA_SUCCESS)
        cuMemMap(address, GRANULE, 0, *handle, 0);
    return result;
}

/* Any of these calls may be made to fail; then the next message tries again. */
static int begin_helper(CUdeviceptr *room)
{
    static CUcontext context;
    int result = cuInit(0);
    if (result == CUDA_SUCCESS && context == NULL)
        result = cuDevicePrimaryCtxRetain(&context, 0);
    if (result != CUDA_SUCCESS) {
        context = NULL; /* a call that fails may leave anything in its result */
        return result;
    }
    result = cuCtxSetCurrent(context);
    return result != CUDA_SUCCESS ? result
                                  : (int)cuMemAddressReserve(room, KEPT * GRANULE, 0, 0, 0);
}

static void help(int line)
{
    CUdeviceptr pointers[KEPT] = {0}, own[KEPT] = {0}, room = 0;
    CUmemGenericAllocationHandle handles[KEPT] = {0};
    struct message message;
    int descriptor;
    bool is_begun = false;
    while (hear(line, &message, &descriptor) && message.wish != END) {
        uint32_t i = message.index;
        if (!is_begun) {
            int result = begin_helper(&room);
            is_begun = result == CUDA_SUCCESS;
            if (!is_begun) {
                message.result = result;
                if (descriptor >= 0)
                    close(descriptor);
                tell(line, &message, -1);
                continue;
            }
        }
        switch (message.wish) {
        case OPEN:
            message.result = cuIpcOpenMemHandle_v2(&pointers[i], message.handle, 1);
            break;
        case CLOSE:
            message.result = cuIpcCloseMemHandle(pointers[i]);
            break;
        case IMPORT:
            if (handles[i] == 0)
                message.result = import(descriptor, &handles[i], room + i * GRANULE);
            close(descriptor);
            break;
        case LET_GO:
            cuMemUnmap(room + i * GRANULE, GRANULE);
            message.result = cuMemRelease(handles[i]);
            handles[i] = 0;
            break;
        case EXPORT:
            message.result = own[i] ? 0 : cuMemAlloc_v2(&own[i], 1 + 1000000 * (size_t)i);
            if (message.result == CUDA_SUCCESS)
                message.result = cuIpcGetMemHandle(&message.handle, own[i]);
            break;
        default:
            message.result = cuMemFree_v2(own[i]);
            own[i] = 0;
        }
        tell(line, &message, -1);
    }
    _exit(0);
}

/* ---- who asks it ---- */

void ipc_begin(void)
{
    for (int i = 0; i < HELPERS; i++) {
        int both[2];
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, both) != 0)
            fuzz_fail("no socket");
        helpers[i] = fork();
        if (helpers[i] == 0) {
            for (int earlier = 0; earlier < i; earlier++)
                close(lines[earlier]);
            close(both[0]);
            help(both[1]);
        }
        lines[i] = both[0];
        close(both[1]);
    }
}

static int ask(struct message *message, int descriptor)
{
    tell(lines[alive], message, descriptor);
    if (!hear(lines[alive], message, &descriptor))
        fuzz_fail("a helper has crashed");
    return fuzz_said("helper", message->result);
}

static void end_helper(void)
{
    struct message message = {.wish = END};
    if (alive == HELPERS - 1)
        return;
    tell(lines[alive], &message, -1);
    waitpid(helpers[alive], NULL, 0);
    close(lines[alive++]);
}

static void send_handle(struct message *message)
{
    message->wish = OPEN;
    if (SAY(cuIpcGetMemHandle(&message->handle, memory_any())) == CUDA_SUCCESS)
        ask(message, -1);
}

static void send_descriptor(struct message *message)
{
    int descriptor = -1;
    message->wish = IMPORT;
    if (SAY(cuMemExportToShareableHandle(
            &descriptor, vmm_any(), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0)) != CUDA_SUCCESS)
        return;
    if (!one_in(4))
        ask(message, descriptor);
    close(descriptor);
}

static void open_what_is_sent(struct message *message)
{
    CUdeviceptr address = UNTOUCHED;
    message->wish = EXPORT;
    if (ask(message, -1) != CUDA_SUCCESS)
        return;
    if (one_in(12))
        message->handle.reserved[3] ^= 77;
    int result = SAY(cuIpcOpenMemHandle_v2(&address, message->handle, 1));
    fuzz_untouched(result, address);
    if (result == CUDA_SUCCESS)
        *ANY(opened) = address;
}

void ipc_step(void)
{
    struct message message = {.index = (uint32_t)roll(KEPT)};
    switch (roll(10)) {
    case 0 ... 1:
        send_handle(&message);
        return;
    case 2:
        message.wish = CLOSE;
        ask(&message, -1);
        return;
    case 3 ... 4:
        send_descriptor(&message);
        return;
    case 5:
        message.wish = LET_GO;
        ask(&message, -1);
        return;
    case 6:
        open_what_is_sent(&message);
        return;
    case 7:
        SAY(cuIpcCloseMemHandle(one_in(5) ? memory_any() : *ANY(opened)));
        return;
    case 8:
        message.wish = FREE;
        ask(&message, -1);
        return;
    default:
        if (one_in(4))
            end_helper();
    }
}

void ipc_rest(void)
{
}
