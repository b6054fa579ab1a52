/* Marks on file descriptors, in one process and in several. Prints "done", or says what does not
 * hold and fails; ends itself when it hangs.
 *
 *   descriptor_marks memfd|FILE */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "memory/shared/descriptor.h"

#define COUNT 256u
#define HANG_SECONDS 20

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            exit(1); \
        } \
    } while (0)

static const char *kind;
static int memory = -1; /* the memfd, held open without marks */
static int probe;
static uint64_t place; /* nobody else's, also where the file is everybody's */

/* A new description of the file. */
static int description(void)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", memory);
    int made = open(memory >= 0 ? path : kind, O_RDWR | O_CLOEXEC);
    CHECK(made >= 0);
    return made;
}

static bool is_marked(void)
{
    return descriptor_is_marked(probe, place, COUNT);
}

static bool has_mark(int descriptor)
{
    return descriptor_has_mark(descriptor, probe, place, COUNT);
}

static void one_process(void)
{
    int first = description(), other = description();
    CHECK(!is_marked() && !has_mark(first));
    CHECK(descriptor_mark(first, place + 7));
    CHECK(is_marked() && has_mark(first) && !has_mark(other));
    CHECK(!descriptor_is_marked(probe, place, 7) && !descriptor_is_marked(probe, place + 8, 9));
    int copy = dup(first);
    close(first);
    CHECK(is_marked() && has_mark(copy));
    close(copy);
    CHECK(!is_marked());
    close(other);
}

static void several_marks(void)
{
    int made[5];
    for (int i = 0; i < 5; i++)
        made[i] = description();
    CHECK(descriptor_mark(made[0], place + 9) && descriptor_mark(made[1], place + 3) &&
          descriptor_mark(made[2], place + 5));
    CHECK(has_mark(made[0]) && has_mark(made[1]) && has_mark(made[2]) && !has_mark(made[3]));
    CHECK(descriptor_mark(made[3], place) && descriptor_mark(made[3], place + 1)); /* one lock */
    CHECK(has_mark(made[3]) && has_mark(made[2]) && !has_mark(made[4]));
    for (int i = 0; i < 5; i++) { /* in an order of their own */
        CHECK(is_marked() || i == 4);
        close(made[i]);
    }
    CHECK(!is_marked());
}

static void send_descriptor(int through, int descriptor)
{
    char byte = 0, control[CMSG_SPACE(sizeof descriptor)] = {0};
    struct iovec data = {&byte, 1};
    struct msghdr message = {.msg_iov = &data,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof control};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    *head = (struct cmsghdr){
        .cmsg_len = CMSG_LEN(sizeof descriptor), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(head), &descriptor, sizeof descriptor);
    CHECK(sendmsg(through, &message, 0) == 1);
}

static int receive_descriptor(int through)
{
    int descriptor;
    char byte, control[CMSG_SPACE(sizeof descriptor)];
    struct iovec data = {&byte, 1};
    struct msghdr message = {.msg_iov = &data,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof control};
    CHECK(recvmsg(through, &message, 0) == 1 && CMSG_FIRSTHDR(&message) != NULL);
    memcpy(&descriptor, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof descriptor);
    return descriptor;
}

/* The parent sends a marked and an unmarked one, and closes its own while they are under way. */
static void another_process(void)
{
    int ends[2];
    char byte;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        int marked = receive_descriptor(ends[1]), plain = receive_descriptor(ends[1]);
        int own_probe = descriptor_probe(marked);
        CHECK(own_probe >= 0 && descriptor_has_mark(marked, own_probe, place, COUNT));
        CHECK(!descriptor_has_mark(plain, own_probe, place, COUNT));
        CHECK(write(ends[1], "", 1) == 1 && read(ends[1], &byte, 1) == 1);
        close(marked);
        CHECK(!descriptor_is_marked(own_probe, place, COUNT));
        _exit(0);
    }
    int marked = description(), plain = description(), status;
    CHECK(descriptor_mark(marked, place + 1));
    send_descriptor(ends[0], marked);
    close(marked);
    CHECK(is_marked());
    send_descriptor(ends[0], plain);
    CHECK(read(ends[0], &byte, 1) == 1 && is_marked());
    CHECK(write(ends[0], "", 1) == 1 && waitpid(child, &status, 0) == child && status == 0);
    CHECK(!is_marked());
    close(plain);
    close(ends[0]);
    close(ends[1]);
}

/* A child holds what was open when it was forked, until it dies. */
static void a_child(void)
{
    int marked = description();
    CHECK(descriptor_mark(marked, place + 2));
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0)
        for (;;)
            pause();
    close(marked);
    CHECK(is_marked());
    kill(child, SIGKILL);
    CHECK(waitpid(child, NULL, 0) == child && !is_marked());
}

static void probes(void)
{
    int ends[2], low = description();
    CHECK(pipe(ends) == 0 && descriptor_probe(ends[0]) == -1 && descriptor_probe(-1) == -1);
    int own = descriptor_probe(low);
    uint64_t identity = descriptor_identity(own);
    CHECK(own > low && identity != 0 && fcntl(own, F_GETFD) == FD_CLOEXEC);
    CHECK(identity == descriptor_identity(probe));
    close(own);
    CHECK(descriptor_identity(own) == 0);
    CHECK(dup2(ends[0], own) == own && descriptor_identity(own) != identity);
    close(own);
    close(ends[0]);
    close(ends[1]);
    close(low);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    alarm(HANG_SECONDS);
    kind = argv[1];
    if (strcmp(kind, "memfd") == 0)
        CHECK((memory = memfd_create("marks", MFD_CLOEXEC)) >= 0);
    place = (uint64_t)getpid() << 20;
    int seen = description();
    CHECK((probe = descriptor_probe(seen)) >= 0);
    close(seen);
    one_process();
    several_marks();
    another_process();
    a_child();
    probes();
    puts("done");
    return 0;
}
