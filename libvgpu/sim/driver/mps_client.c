/*
 * Being a client of MPS. cuInit connects to the control daemon of CUDA_MPS_PIPE_DIRECTORY
 * (sim/mps/wire.py has the words); without one there is no MPS. The daemon answers with the GPUs
 * served and the bounds on them, and hands the connection to its server.
 *
 * The connection stays open. When it breaks, the server is gone, and with it the work of its
 * clients: a thread that waits for this marks the process as failed on all its devices. The lock by
 * which the core sees a server (SIM_MPS_BASE) does not tell one server from the next.
 *
 * A client that meets a fatal fault of its GPU says so, once: the server then takes no new ones
 * until those it has have ended.
 *
 * Written under driver.mutex in cuInit; `lost` is set by the watching thread, once.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "driver.h"

#define WHOLE_PERCENT 100
#define ANSWER_SECONDS 60 /* a server may have to be started */
#define CLIENTS_FROM_VOLTA 48
#define CLIENTS_BEFORE_VOLTA 16
#define COMPUTE_MAJOR_VOLTA 7

static int connection = -1;
static bool lost, fault_told;

bool mps_client_lost(void)
{
    return __atomic_load_n(&lost, __ATOMIC_ACQUIRE);
}

void mps_client_tell_fault(void)
{
    if (connection >= 0 && !__atomic_exchange_n(&fault_told, true, __ATOMIC_ACQ_REL))
        send(connection, "fault\n", sizeof "fault\n" - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

uint32_t mps_client_limit(const struct driver_device *device)
{
    return device->identity->profile.compute_major >= COMPUTE_MAJOR_VOLTA ? CLIENTS_FROM_VOLTA
                                                                          : CLIENTS_BEFORE_VOLTA;
}

/* ---- bounds ---------------------------------------------------------------------------------- */

/* "4096M", "4G", "123" as bytes; 0 where it is none. */
static uint64_t parse_bytes(const char *text)
{
    char *end;
    unsigned long long count = strtoull(text, &end, 10);
    unsigned int shift = *end == 'K' || *end == 'k'   ? 10
                         : *end == 'M' || *end == 'm' ? 20
                         : *end == 'G' || *end == 'g' ? 30
                                                      : 0;
    return count >> (64 - shift - 1) ? 0 : (uint64_t)count << shift;
}

static void cap_device(struct driver_device *device, uint64_t bytes)
{
    if (bytes && (!device->cap_bytes || bytes < device->cap_bytes))
        device->cap_bytes = bytes;
}

static struct driver_device *served_device(const char *uuid)
{
    for (int i = 0; i < driver.device_count; i++)
        if (strcmp(uuid, driver.devices[i].identity->uuid) == 0)
            return &driver.devices[i];
    return NULL;
}

/* CUDA_MPS_PINNED_DEVICE_MEM_LIMIT: "0=4096M,1=2G", by the numbers this process sees. */
static void read_own_caps(void)
{
    const char *list = getenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT");
    char *copy = list ? strdup(list) : NULL, *rest = NULL;
    for (char *entry = copy ? strtok_r(copy, ", ", &rest) : NULL; entry;
         entry = strtok_r(NULL, ", ", &rest)) {
        char *value = strchr(entry, '=');
        if (!value)
            continue;
        *value++ = '\0';
        for (int i = 0; i < driver.device_count; i++) {
            char ordinal[16];
            snprintf(ordinal, sizeof ordinal, "%d", i);
            bool named =
                strcmp(entry, ordinal) == 0 || strcmp(entry, driver.devices[i].identity->uuid) == 0;
            if (driver.devices[i].percentage && named)
                cap_device(&driver.devices[i], parse_bytes(value));
        }
    }
    free(copy);
}

/* The server's percentage, or what CUDA_MPS_ACTIVE_THREAD_PERCENTAGE asks for where it is less. */
static uint32_t own_percentage(const char *of_server)
{
    int percentage = atoi(of_server);
    const char *own = getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
    double asked = own ? atof(own) : 0;
    if (asked > 0 && asked < percentage)
        percentage = asked < 1 ? 1 : (int)asked;
    return percentage < 1 || percentage > WHOLE_PERCENT ? WHOLE_PERCENT : (uint32_t)percentage;
}

/* Takes the daemon's answer, line by line. Says whether this process is a client. */
static CUresult read_answer(char *answer, bool *client)
{
    uint32_t percentage = WHOLE_PERCENT;
    char *rest = NULL;
    *client = true;
    for (char *line = strtok_r(answer, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char key[16] = "", first[128] = "", second[64] = "";
        sscanf(line, "%15s %127s %63s", key, first, second);
        struct driver_device *device = served_device(first);
        if (strcmp(key, "refused") == 0)
            return (CUresult)atoi(first);
        if (strcmp(key, "other") == 0)
            *client = false;
        else if (strcmp(key, "percentage") == 0)
            percentage = own_percentage(first);
        else if (device && strcmp(key, "device") == 0)
            device->percentage = percentage;
        else if (device && strcmp(key, "pinned") == 0)
            cap_device(device, parse_bytes(second));
    }
    return CUDA_SUCCESS;
}

/* ---- the connection -------------------------------------------------------------------------- */

/* A socket connected to the daemon, or -1: none is there. */
static int connect_daemon(void)
{
    const char *directory = getenv("CUDA_MPS_PIPE_DIRECTORY");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int folder = -1;
    if (!directory || !*directory)
        directory = "/tmp/nvidia-mps";
    if (snprintf(address.sun_path, sizeof address.sun_path, "%s/control", directory) >=
        (int)sizeof address.sun_path) { /* longer than addresses of sockets can be */
        folder = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (folder < 0)
            return -1;
        snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/control", folder);
    }
    int daemon = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (daemon >= 0 && connect(daemon, (struct sockaddr *)&address, sizeof address) != 0) {
        close(daemon);
        daemon = -1;
    }
    if (folder >= 0)
        close(folder);
    return daemon;
}

static bool say_hello(int daemon)
{
    char line[SIM_MAX_GPUS * 64 + 128];
    int length = snprintf(line, sizeof line, "client %s ", sim_machine_identifier(driver.machine));
    for (int i = 0; i < driver.device_count; i++)
        length +=
            snprintf(line + length, sizeof line - (size_t)length, "%s%c",
                     driver.devices[i].identity->uuid, i + 1 < driver.device_count ? ',' : '\n');
    return send(daemon, line, (size_t)length, MSG_NOSIGNAL) == length;
}

static bool hear_answer(int daemon, char *answer, size_t size)
{
    struct timeval patience = {.tv_sec = ANSWER_SECONDS};
    size_t length = 0;
    setsockopt(daemon, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    while (length < size - 1) {
        ssize_t part = recv(daemon, answer + length, size - 1 - length, 0);
        if (part < 0 && errno == EINTR)
            continue;
        if (part <= 0)
            return false;
        length += (size_t)part;
        answer[length] = '\0';
        if (length >= 4 && strcmp(answer + length - 4, "end\n") == 0) {
            patience = (struct timeval){0};
            setsockopt(daemon, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
            return true;
        }
    }
    return false;
}

static void *watch_server(void *argument)
{
    char byte;
    ssize_t got;
    (void)argument;
    do
        got = recv(connection, &byte, 1, 0);
    while (got > 0 || (got < 0 && errno == EINTR));
    if (got < 0 && errno != ECONNRESET)
        return NULL; /* the program has closed what is not its own */
    __atomic_store_n(&lost, true, __ATOMIC_RELEASE);
    for (int i = 0; i < driver.device_count; i++)
        if (driver.devices[i].percentage)
            sim_client_fail(driver.devices[i].device);
    return NULL;
}

static bool start_watching(void)
{
    sigset_t all, before;
    pthread_t thread;
    sigfillset(&all); /* the program's handlers run on its own threads */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool started = pthread_create(&thread, NULL, watch_server, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (started)
        pthread_detach(thread);
    return started;
}

/* A child would keep the connection of its parent open. */
static void leave_in_child(void)
{
    if (connection >= 0)
        close(connection);
    connection = -1;
    fault_told = false;
}

CUresult mps_client_configure(void)
{
    char answer[8192];
    bool client = false;
    for (int i = 0; i < driver.device_count; i++)
        driver.devices[i].percentage = 0, driver.devices[i].cap_bytes = 0;
    int daemon = connect_daemon();
    if (daemon < 0)
        return CUDA_SUCCESS;
    CUresult result = CUDA_ERROR_MPS_CONNECTION_FAILED;
    if (say_hello(daemon) && hear_answer(daemon, answer, sizeof answer))
        result = read_answer(answer, &client);
    if (result != CUDA_SUCCESS || !client) {
        close(daemon);
        return result;
    }
    connection = daemon;
    if (!start_watching()) {
        leave_in_child();
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    pthread_atfork(NULL, NULL, leave_in_child);
    read_own_caps();
    return CUDA_SUCCESS;
}
