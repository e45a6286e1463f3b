/* Pipes, pairs of sockets, eventfd, poll, select and epoll between threads. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { BYTES = 300000, THREADS = 4, MESSAGES = 200 };

struct way {
    int in, out;
    uint64_t sum;
};

/* Writes bytes in pieces of several sizes, then closes its end. */
static void *write_all(void *argument) {
    struct way *way = argument;
    char *text = malloc(BYTES);
    for (int at = 0; at < BYTES; at++)
        text[at] = (char)(at * 7 + at / 251);
    for (int at = 0, piece = 1; at < BYTES; piece = piece * 3 % 9973 + 1) {
        int bytes = piece < BYTES - at ? piece : BYTES - at;
        ssize_t written = write(way->out, text + at, (size_t)bytes);
        if (written <= 0)
            break;
        at += (int)written;
    }
    close(way->out);
    free(text);
    return 0;
}

static uint64_t read_all(int file) {
    char part[5000];
    uint64_t sum = 0;
    for (ssize_t got; (got = read(file, part, sizeof part)) > 0;)
        for (ssize_t at = 0; at < got; at++)
            sum = sum * 31 + (unsigned char)part[at];
    return sum;
}

static void streams(int is_socket) {
    int files[2];
    pthread_t id;
    if (is_socket)
        socketpair(AF_UNIX, SOCK_STREAM, 0, files);
    else
        pipe(files);
    struct way way = {files[0], files[1], 0};
    pthread_create(&id, 0, write_all, &way);
    uint64_t sum = read_all(files[0]);
    pthread_join(id, 0);
    close(files[0]);
    printf("%s %016llx\n", is_socket ? "socket" : "pipe", (unsigned long long)sum);
}

/* As hackbench: every sender sends to every receiver, which reads whole messages. */
static int pairs[THREADS][2];

static void *send_each(void *unused) {
    char message[100] = "a message";
    for (int round = 0; round < MESSAGES; round++)
        for (int to = 0; to < THREADS; to++)
            if (write(pairs[to][1], message, sizeof message) != sizeof message)
                abort();
    return unused;
}

static void *receive(void *argument) {
    char message[100];
    long number = (long)argument, sum = 0;
    for (int round = 0; round < THREADS * MESSAGES; round++) {
        for (size_t got = 0; got < sizeof message;) {
            ssize_t bytes = read(pairs[number][0], message + got, sizeof message - got);
            if (bytes <= 0)
                abort();
            got += (size_t)bytes;
        }
        sum += message[2] == 'm';
    }
    return (void *)sum;
}

static void messages(int is_socket) {
    pthread_t senders[THREADS], receivers[THREADS];
    long sum = 0;
    for (long number = 0; number < THREADS; number++) {
        if (is_socket)
            socketpair(AF_UNIX, SOCK_STREAM, 0, pairs[number]);
        else
            pipe(pairs[number]);
        pthread_create(&receivers[number], 0, receive, (void *)number);
    }
    for (int number = 0; number < THREADS; number++)
        pthread_create(&senders[number], 0, send_each, 0);
    for (int number = 0; number < THREADS; number++) {
        void *value;
        pthread_join(senders[number], 0);
        pthread_join(receivers[number], &value);
        sum += (long)value;
        close(pairs[number][0]);
        close(pairs[number][1]);
    }
    printf("messages %ld\n", sum);
}

static void edges(void) {
    int files[2], waiting;
    char byte = 'x', two[2];
    struct iovec parts[2] = {{&byte, 1}, {two, 2}};
    signal(SIGPIPE, SIG_IGN);
    pipe2(files, O_NONBLOCK);
    int empty = read(files[0], &byte, 1) == -1 && errno == EAGAIN;
    int full = 0;
    while (write(files[1], &byte, 1) == 1)
        full++;
    int is_full = errno == EAGAIN;
    ioctl(files[0], FIONREAD, &waiting);
    fcntl(files[0], F_SETFL, 0);
    int flags = fcntl(files[1], F_GETFL);
    int copy = dup(files[0]);
    close(files[0]);
    int by_copy = read(copy, two, 2) == 2;
    close(copy);
    int broken = write(files[1], &byte, 1) == -1 && errno == EPIPE;
    close(files[1]);
    socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, files);
    int sent = send(files[0], "abc", 3, MSG_NOSIGNAL) == 3;
    int several = readv(files[1], parts, 2) == 3 && byte == 'a' && two[1] == 'c';
    shutdown(files[0], SHUT_WR);
    int end = recv(files[1], &byte, 1, 0) == 0;
    int nothing = recv(files[0], &byte, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN;
    close(files[0]);
    close(files[1]);
    printf("empty %d, full %d %d %d, flags %d, copy %d, broken %d, sent %d %d, end %d %d\n", empty, full > 4096,
           is_full, waiting == full, flags == (O_WRONLY | O_NONBLOCK), by_copy, broken, sent, several, end, nothing);
}

static int events;

static void *count_up(void *argument) {
    struct way *way = argument;
    uint64_t one = 1;
    for (int round = 0; round < 10; round++) {
        usleep(200);
        write(events, &one, sizeof one);
    }
    usleep(1000);
    write(way->out, "end", 3);
    return 0;
}

static void polls(void) {
    int files[2];
    pthread_t id;
    uint64_t value, sum = 0, rounds = 0;
    char text[4] = "";
    pipe(files);
    events = eventfd(0, EFD_NONBLOCK);
    struct way way = {files[0], files[1], 0};
    struct pollfd all[3] = {{events, POLLIN, 0}, {files[0], POLLIN, 0}, {-1, POLLIN, 0}};
    int none = poll(all, 3, 1);
    pthread_create(&id, 0, count_up, &way);
    while (poll(all, 3, -1) > 0 && !(all[1].revents & POLLIN))
        if (read(events, &value, sizeof value) == sizeof value)
            sum += value;
    while (read(events, &value, sizeof value) == sizeof value)
        sum += value;
    read(files[0], text, 3);
    pthread_join(id, 0);
    fd_set reads, writes;
    struct timeval time = {0, 1000};
    FD_ZERO(&reads);
    FD_ZERO(&writes);
    FD_SET(files[0], &reads);
    FD_SET(files[1], &writes);
    int selected = select(files[1] + 1, &reads, &writes, 0, &time);
    int right = selected == 1 && !FD_ISSET(files[0], &reads) && FD_ISSET(files[1], &writes);
    int epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 42}, got[4];
    epoll_ctl(epoll, EPOLL_CTL_ADD, files[0], &event);
    event.data.u64 = 43;
    epoll_ctl(epoll, EPOLL_CTL_ADD, events, &event);
    pthread_create(&id, 0, count_up, &way);
    uint64_t by_epoll = 0;
    while (rounds < 200) {
        int count = epoll_wait(epoll, got, 4, -1), ended = 0;
        for (int index = 0; index < count; index++) {
            if (got[index].data.u64 == 43 && read(events, &value, sizeof value) == sizeof value)
                by_epoll += value;
            ended |= got[index].data.u64 == 42;
        }
        if (ended)
            break;
        rounds++;
    }
    pthread_join(id, 0);
    while (read(events, &value, sizeof value) == sizeof value)
        by_epoll += value;
    close(files[1]);
    read(files[0], text, 3);
    all[1].revents = 0;
    int hung = poll(&all[1], 1, 0) == 1 && all[1].revents == POLLHUP;
    int semaphore = eventfd(2, EFD_SEMAPHORE);
    read(semaphore, &value, sizeof value);
    printf("none %d, sum %d %s, select %d, epoll %d, hung %d, semaphore %d\n", none, (int)sum, text, right,
           (int)by_epoll, hung, (int)value);
}

/* An eventfd by system calls, as programs make them that do without the C library's functions. */
static void raw_calls(void) {
    uint64_t seven = 7, got = 0;
    int raw = (int)syscall(SYS_eventfd2, 0, EFD_CLOEXEC);
    int written = (int)syscall(SYS_write, raw, &seven, sizeof seven);
    int taken = (int)syscall(SYS_read, raw, &got, sizeof got);
    int wrong = syscall(SYS_eventfd2, 0, 0x40000000) == -1 && errno == EINVAL;
    int closed = (int)syscall(SYS_close, raw);
    int gone = read(raw, &got, sizeof got) == -1 && errno == EBADF;
    printf("raw %d %d %d, wrong %d, closed %d %d\n", written, taken, (int)got, wrong, closed, gone);
}

/* Streams of the C library over both ends of a pipe. */
static void *print(void *argument) {
    FILE *stream = fdopen(*(int *)argument, "w");
    for (int line = 0; line < 3; line++)
        fprintf(stream, "line %d\n", line);
    fflush(stream);
    dprintf(fileno(stream), "%d %s %.1f %d %d %d %ld\n", 1, "two", 3.5, 4, 5, 6, 7L);
    fclose(stream);
    return 0;
}

static void buffered(void) {
    int files[2];
    char line[32];
    pthread_t id;
    pipe(files);
    pthread_create(&id, 0, print, &files[1]);
    FILE *stream = fdopen(files[0], "r");
    int file = fileno(stream) == files[0];
    while (fgets(line, sizeof line, stream))
        printf("%s", line);
    pthread_join(id, 0);
    int closed = fclose(stream), gone = read(files[0], line, 1) == -1 && errno == EBADF;
    printf("stream %d %d %d\n", file, closed, gone);
}

int main(void) {
    buffered();
    streams(0);
    streams(1);
    messages(0);
    messages(1);
    edges();
    polls();
    raw_calls();
    return 0;
}
