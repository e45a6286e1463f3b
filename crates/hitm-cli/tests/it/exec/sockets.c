/* Sockets that listen and connect, epoll with edges, and timers that are files. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { CLIENTS = 6, ROUNDS = 50, WORKERS = 3 };

static struct sockaddr_in loopback(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

static int port_of(int file) {
    struct sockaddr_in address;
    socklen_t length = sizeof address;
    getsockname(file, (struct sockaddr *)&address, &length);
    return ntohs(address.sin_port);
}

static int listen_at_loopback(int flags) {
    struct sockaddr_in address = loopback(0);
    int file = socket(AF_INET, SOCK_STREAM | flags, 0), one = 1;
    setsockopt(file, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(file, (struct sockaddr *)&address, sizeof address) || listen(file, 64))
        abort();
    return file;
}

static int connect_to(int port) {
    struct sockaddr_in address = loopback(port);
    int file = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(file, (struct sockaddr *)&address, sizeof address))
        abort();
    return file;
}

static int port, connects_each_time;

/* Sends messages, and expects each one back. */
static void *client(void *argument) {
    long number = (long)argument, sum = 0;
    int file = connect_to(port), one = 1;
    setsockopt(file, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    for (int round = 0; round < ROUNDS; round++) {
        if (connects_each_time) {
            close(file);
            file = connect_to(port);
        }
        char message[64] = "", answer[64] = "";
        snprintf(message, sizeof message, "%ld/%d", number, round);
        send(file, message, sizeof message, MSG_NOSIGNAL);
        if (recv(file, answer, sizeof answer, MSG_WAITALL) != sizeof answer || strcmp(message, answer))
            abort();
        sum += round;
    }
    close(file);
    return (void *)sum;
}

/* One thread serves all, and is told once of what comes. */
static void serve_by_edges(void) {
    pthread_t ids[CLIENTS];
    int listener = listen_at_loopback(SOCK_NONBLOCK), epoll = epoll_create1(EPOLL_CLOEXEC), left = CLIENTS;
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.fd = listener}, got[4];
    long sum = 0, messages = 0;
    port = port_of(listener);
    epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event);
    for (long number = 0; number < CLIENTS; number++)
        pthread_create(&ids[number], 0, client, (void *)number);
    while (left) {
        int count = epoll_wait(epoll, got, 4, -1);
        for (int at = 0; at < count; at++) {
            int file = got[at].data.fd, next;
            char part[64];
            ssize_t bytes;
            if (file == listener) {
                while ((next = accept4(listener, 0, 0, SOCK_NONBLOCK)) >= 0) {
                    event = (struct epoll_event){.events = EPOLLIN | EPOLLRDHUP | EPOLLET, .data.fd = next};
                    epoll_ctl(epoll, EPOLL_CTL_ADD, next, &event);
                }
                continue;
            }
            while ((bytes = read(file, part, sizeof part)) > 0) {
                messages++;
                if (write(file, part, (size_t)bytes) != bytes)
                    abort();
            }
            if (!bytes) {
                close(file);
                left--;
            }
        }
    }
    for (int number = 0; number < CLIENTS; number++) {
        void *value;
        pthread_join(ids[number], &value);
        sum += (long)value;
    }
    close(listener);
    close(epoll);
    printf("edges %ld %ld\n", sum, messages);
}

static int listener;

/* Each of several threads accepts, and serves until the peer closes. */
static void *serve(void *unused) {
    for (int file; (file = accept(listener, 0, 0)) >= 0; close(file)) {
        char part[64];
        struct iovec whole = {part, sizeof part};
        struct msghdr message = {.msg_iov = &whole, .msg_iovlen = 1};
        while (recvmsg(file, &message, 0) > 0)
            sendto(file, part, sizeof part, MSG_NOSIGNAL, 0, 0);
    }
    return errno == EINVAL ? unused : (void *)1;
}

static void serve_by_threads(void) {
    pthread_t clients[CLIENTS], workers[WORKERS];
    long sum = 0, wrong = 0;
    void *value;
    listener = listen_at_loopback(0);
    port = port_of(listener);
    for (int number = 0; number < WORKERS; number++)
        pthread_create(&workers[number], 0, serve, 0);
    for (long number = 0; number < CLIENTS; number++)
        pthread_create(&clients[number], 0, client, (void *)number);
    for (int number = 0; number < CLIENTS; number++) {
        pthread_join(clients[number], &value);
        sum += (long)value;
    }
    shutdown(listener, SHUT_RD);
    for (int number = 0; number < WORKERS; number++) {
        pthread_join(workers[number], &value);
        wrong += (long)value;
    }
    close(listener);
    printf("threads %ld, wrong %ld\n", sum, wrong);
}

static int epoll_of_all;
static long served;

static void *take(void *argument) {
    struct epoll_event got;
    uint64_t value;
    while (epoll_wait(epoll_of_all, &got, 1, -1) == 1) {
        if (got.data.fd == *(int *)argument)
            return 0;
        if (read(got.data.fd, &value, sizeof value) == sizeof value)
            __atomic_fetch_add(&served, (long)value, __ATOMIC_RELAXED);
    }
    return 0;
}

/* Several threads wait at one epoll: each event is one thread's. */
static void share_an_epoll(void) {
    pthread_t ids[WORKERS];
    int events[8], end = eventfd(0, EFD_NONBLOCK);
    uint64_t one = 1;
    epoll_of_all = epoll_create1(0);
    for (int number = 0; number < 8; number++) {
        events[number] = eventfd(0, EFD_NONBLOCK);
        struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.fd = events[number]};
        epoll_ctl(epoll_of_all, EPOLL_CTL_ADD, events[number], &event);
    }
    for (int number = 0; number < WORKERS; number++)
        pthread_create(&ids[number], 0, take, &end);
    for (int round = 0; round < 40; round++)
        write(events[round % 8], &one, sizeof one);
    while (__atomic_load_n(&served, __ATOMIC_RELAXED) < 40)
        usleep(100);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = end};
    epoll_ctl(epoll_of_all, EPOLL_CTL_ADD, end, &event);
    write(end, &one, sizeof one);
    for (int number = 0; number < WORKERS; number++)
        pthread_join(ids[number], 0);
    printf("shared %ld\n", served);
}

static int events_at(int epoll) {
    struct epoll_event got;
    return epoll_wait(epoll, &got, 1, 0) == 1 ? (int)got.events : 0;
}

/* What each way of watching tells. */
static void ways(void) {
    int files[2], epoll = epoll_create1(0), outer = epoll_create1(0);
    char part[8];
    socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, files);
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET};
    epoll_ctl(epoll, EPOLL_CTL_ADD, files[0], &event);
    int first = events_at(epoll), again = events_at(epoll);
    write(files[1], "ab", 2);
    int come = events_at(epoll), left = events_at(epoll);
    read(files[0], part, 1);
    int half = events_at(epoll);
    write(files[1], "c", 1);
    int more = events_at(epoll);
    event.events = EPOLLIN | EPOLLET;
    epoll_ctl(epoll, EPOLL_CTL_MOD, files[0], &event);
    int changed = events_at(epoll);
    printf("ways %x %x, %x %x, %x %x, %x\n", first, again, come, left, half, more, changed);
    event.events = EPOLLIN;
    epoll_ctl(epoll, EPOLL_CTL_MOD, files[0], &event);
    struct epoll_event inner = {.events = EPOLLIN};
    epoll_ctl(outer, EPOLL_CTL_ADD, epoll, &inner);
    int level = events_at(epoll), nested = events_at(outer);
    read(files[0], part, 8);
    int none = events_at(epoll), below = events_at(outer);
    event.events = EPOLLIN | EPOLLONESHOT;
    epoll_ctl(epoll, EPOLL_CTL_MOD, files[0], &event);
    write(files[1], "d", 1);
    int once = events_at(epoll), spent = events_at(epoll);
    epoll_ctl(epoll, EPOLL_CTL_MOD, files[0], &event);
    int armed = events_at(epoll);
    event.events = EPOLLIN | EPOLLRDHUP | EPOLLET;
    epoll_ctl(epoll, EPOLL_CTL_MOD, files[0], &event);
    events_at(epoll);
    close(files[1]);
    int closed = events_at(epoll), twice = epoll_ctl(epoll, EPOLL_CTL_ADD, files[0], &event) == -1 && errno == EEXIST;
    close(files[0]);
    socketpair(AF_UNIX, SOCK_STREAM, 0, files);
    int anew = epoll_ctl(epoll, EPOLL_CTL_ADD, files[0], &event);
    int removed = epoll_ctl(epoll, EPOLL_CTL_DEL, files[0], 0);
    write(files[1], "e", 1);
    int quiet = events_at(epoll), unknown = epoll_ctl(epoll, EPOLL_CTL_DEL, files[0], 0) == -1 && errno == ENOENT;
    int itself = epoll_ctl(epoll, EPOLL_CTL_ADD, epoll, &event) == -1 && errno == EINVAL;
    int loop = epoll_ctl(epoll, EPOLL_CTL_ADD, outer, &event) == -1 && errno == ELOOP;
    printf("levels %x %x, %x %x, once %x %x %x, closed %x %d, anew %d %d, quiet %x %d, loops %d %d\n", level, nested,
           none, below, once, spent, armed, closed, twice, anew, removed, quiet, unknown, itself, loop);
    close(files[0]);
    close(files[1]);
    close(epoll);
    close(outer);
}

static void *late(void *argument) {
    usleep(2000);
    write(*(int *)argument, "late", 4);
    return 0;
}

/* Connections that are refused, or asked for without waiting; names; reads with a time. */
static void names(void) {
    int server = listen_at_loopback(0), number = port_of(server), error = -1, type = -1;
    struct sockaddr_in address = loopback(number), told;
    socklen_t length = sizeof error;
    int taken = socket(AF_INET, SOCK_STREAM, 0);
    int in_use = bind(taken, (struct sockaddr *)&address, sizeof address) == -1 && errno == EADDRINUSE;
    int alone = send(taken, "x", 1, MSG_NOSIGNAL) == -1 && (errno == ENOTCONN || errno == EPIPE);
    struct pollfd one = {-1, POLLOUT, 0};
    one.fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    int progress = connect(one.fd, (struct sockaddr *)&address, sizeof address) == -1 && errno == EINPROGRESS;
    int writable = poll(&one, 1, 1000) == 1 && one.revents == POLLOUT;
    getsockopt(one.fd, SOL_SOCKET, SO_ERROR, &error, &length);
    getsockopt(one.fd, SOL_SOCKET, SO_TYPE, &type, &length);
    int file = accept(server, 0, 0);
    length = sizeof told;
    getpeername(file, (struct sockaddr *)&told, &length);
    int same = ntohs(told.sin_port) == port_of(one.fd) && length == sizeof told && port_of(file) == number;
    int twice = connect(one.fd, (struct sockaddr *)&address, sizeof address);
    twice |= connect(one.fd, (struct sockaddr *)&address, sizeof address) == -1 && errno == EISCONN;
    close(server);
    int refused = connect(taken, (struct sockaddr *)&address, sizeof address) == -1 && errno == ECONNREFUSED;
    int no_socket = listen(0, 1) == -1 && errno == ENOTSOCK;
    printf("in use %d, alone %d, progress %d %d %d %d, same %d, twice %d, refused %d, none %d\n", in_use, alone,
           progress, writable, error, type == SOCK_STREAM, same, twice, refused, no_socket);
    char part[8] = "";
    struct timeval time = {0, 1000};
    pthread_t id;
    setsockopt(file, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    int over = recv(file, part, 4, 0) == -1 && errno == EAGAIN;
    time = (struct timeval){0, 0};
    setsockopt(file, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    pthread_create(&id, 0, late, &one.fd);
    int peeked = recv(file, part, 2, MSG_PEEK) == 2 && !strcmp(part, "la");
    int whole = recv(file, part, 4, 0) == 4 && !strcmp(part, "late");
    pthread_join(id, 0);
    shutdown(one.fd, SHUT_WR);
    int end = recv(file, part, 4, 0) == 0 && write(file, "back", 4) == 4 && read(one.fd, part, 8) == 4;
    close(one.fd);
    close(file);
    printf("over %d, peeked %d %d, end %d\n", over, peeked, whole, end);
}

static void local(const char *path, socklen_t bytes) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, path, bytes);
    socklen_t length = (socklen_t)(sizeof(sa_family_t) + bytes);
    int server = socket(AF_UNIX, SOCK_STREAM, 0), file = socket(AF_UNIX, SOCK_STREAM, 0);
    int missing = connect(file, (struct sockaddr *)&address, length) == -1 && (errno == ENOENT || errno == ECONNREFUSED);
    int bound = bind(server, (struct sockaddr *)&address, length);
    int deaf = connect(file, (struct sockaddr *)&address, length) == -1 && errno == ECONNREFUSED;
    listen(server, 1);
    int connected = connect(file, (struct sockaddr *)&address, length), other = accept(server, 0, 0);
    char part[8] = "";
    write(file, "local", 5);
    read(other, part, 5);
    printf("local %d %d %d %d %s\n", missing, bound, deaf, connected, part);
    close(server);
    close(file);
    close(other);
    if (*path)
        unlink(path);
}

static void *fill(void *argument) {
    char part[4096] = "";
    while (send(*(int *)argument, part, sizeof part, MSG_NOSIGNAL) > 0)
        ;
    return (void *)(long)errno;
}

static void *receive_one(void *argument) {
    char byte;
    return (void *)(long)recv(*(int *)argument, &byte, 1, 0);
}

static void *close_late(void *argument) {
    usleep(3000);
    shutdown(*(int *)argument, SHUT_RDWR);
    return 0;
}

static void note(int signal) { (void)signal; }

static volatile int is_interrupted;

/* Until the thread says so: a signal may come before it waits. */
static void *interrupt(void *argument) {
    while (!is_interrupted) {
        usleep(3000);
        pthread_kill(*(pthread_t *)argument, SIGUSR1);
    }
    return 0;
}

static void *drain(void *argument) {
    char part[4096];
    long sum = 0;
    for (ssize_t got; (got = read(*(int *)argument, part, sizeof part)) > 0;)
        sum += got;
    return (void *)sum;
}

/* Ends of connections, and waits that signals end. */
static void corners(void) {
    int files[2];
    pthread_t id, self = pthread_self();
    void *value, *other;
    char *text = calloc(1, 300000);
    socketpair(AF_UNIX, SOCK_STREAM, 0, files);
    pthread_create(&id, 0, fill, &files[0]);
    usleep(3000);
    close(files[1]);
    pthread_join(id, &value);
    close(files[0]);
    int full = (long)value == EPIPE || (long)value == ECONNRESET;
    int server = listen_at_loopback(0), file = connect_to(port_of(server)), peer = accept(server, 0, 0);
    pthread_create(&id, 0, close_late, &file);
    other = receive_one(&file);
    pthread_join(id, 0);
    int over = (long)other == 0 && send(file, "x", 1, MSG_NOSIGNAL) == -1 && errno == EPIPE;
    struct pollfd one = {peer, POLLIN | POLLRDHUP, 0};
    int hung = poll(&one, 1, 1000) == 1 && one.revents == (POLLIN | POLLRDHUP);
    close(file);
    close(peer);
    close(server);
    struct sockaddr_in address = loopback(1), told;
    socklen_t length = sizeof told;
    one.fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    int started = connect(one.fd, (struct sockaddr *)&address, sizeof address) == -1 && errno == EINPROGRESS;
    one.events = POLLOUT;
    poll(&one, 1, 1000);
    int error = 0;
    length = sizeof error;
    getsockopt(one.fd, SOL_SOCKET, SO_ERROR, &error, &length);
    int failed = one.revents & POLLERR && error == ECONNREFUSED;
    close(one.fd);
    printf("corners %d %d %d, refused %d %d\n", full, over, hung, started, failed);
    /* A wait for several files does not go on after a handler, whatever its flags. */
    struct sigaction action = {.sa_handler = note, .sa_flags = SA_RESTART};
    sigset_t set, none;
    sigaction(SIGUSR1, &action, 0);
    int epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    pthread_create(&id, 0, interrupt, &self);
    int by_epoll = epoll_wait(epoll, &event, 1, -1) == -1 && errno == EINTR;
    is_interrupted = 1;
    pthread_join(id, 0);
    sigemptyset(&none);
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &set, 0);
    raise(SIGUSR1);
    int pending = epoll_pwait(epoll, &event, 1, -1, &none) == -1 && errno == EINTR;
    pthread_sigmask(SIG_UNBLOCK, &set, 0);
    fd_set reads;
    FD_ZERO(&reads);
    FD_SET(epoll, &reads);
    int by_pselect = pselect(epoll + 1, &reads, 0, 0, &(struct timespec){0, 1000000}, 0);
    /* The set knows files, not numbers. */
    int first = eventfd(0, 0), copy = dup(first);
    eventfd_t count = 0;
    event.events = EPOLLIN;
    epoll_ctl(epoll, EPOLL_CTL_ADD, first, &event);
    close(first);
    int second = eventfd(0, 0), same = second == first;
    int added = epoll_ctl(epoll, EPOLL_CTL_ADD, second, &event);
    eventfd_write(copy, 3);
    int told_of_copy = events_at(epoll), read_back = eventfd_read(copy, &count);
    close(copy);
    int closed = epoll_ctl(epoll, EPOLL_CTL_DEL, copy, 0) == -1 && errno == EBADF;
    printf("interrupted %d %d, select %d, copies %d %d %x %d %d, closed %d\n", by_epoll, pending, by_pselect, same, added,
           told_of_copy, read_back, (int)count, closed);
    close(second);
    close(epoll);
    pipe(files);
    struct iovec parts[2] = {{text, 16}, {text, 300000 - 16}};
    struct stat state;
    fstat(files[0], &state);
    int is_pipe = S_ISFIFO(state.st_mode), nowhere = lseek(files[0], 0, SEEK_CUR) == -1 && errno == ESPIPE;
    pthread_create(&id, 0, drain, &files[0]);
    int whole = writev(files[1], parts, 2) == 300000;
    close(files[1]);
    pthread_join(id, &value);
    close(files[0]);
    free(text);
    /* A server of both versions sees a client of version 4 by a mapped address. */
    struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_ANY_INIT}, from = {0};
    server = socket(AF_INET6, SOCK_STREAM, 0);
    bind(server, (struct sockaddr *)&any, sizeof any);
    listen(server, 1);
    length = sizeof any;
    getsockname(server, (struct sockaddr *)&any, &length);
    file = connect_to(ntohs(any.sin6_port));
    length = sizeof from;
    peer = accept(server, (struct sockaddr *)&from, &length);
    int mapped = length == sizeof from && IN6_IS_ADDR_V4MAPPED(&from.sin6_addr);
    close(file);
    close(peer);
    close(server);
    printf("pipe %d %d, whole %d %ld, mapped %d\n", is_pipe, nowhere, whole, (long)value, mapped);
}

/* A timer that is a file: by a read, and by epoll. */
static void timer(void) {
    struct itimerspec times = {{0, 1000000}, {0, 1000000}}, left;
    struct timespec begin, end;
    int file = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC), epoll = epoll_create1(0);
    uint64_t count = 0, sum = 0;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    timerfd_settime(file, 0, &times, 0);
    timerfd_gettime(file, &left);
    int is_set = left.it_interval.tv_nsec == 1000000 && left.it_value.tv_nsec > 0;
    while (sum < 5 && read(file, &count, sizeof count) == sizeof count)
        sum += count;
    struct epoll_event event = {.events = EPOLLIN}, got;
    epoll_ctl(epoll, EPOLL_CTL_ADD, file, &event);
    while (sum < 10 && epoll_wait(epoll, &got, 1, -1) == 1 && read(file, &count, sizeof count) == sizeof count)
        sum += count;
    clock_gettime(CLOCK_MONOTONIC, &end);
    long micros = (end.tv_sec - begin.tv_sec) * 1000000 + (end.tv_nsec - begin.tv_nsec) / 1000;
    memset(&times, 0, sizeof times);
    timerfd_settime(file, 0, &times, 0);
    int stopped = epoll_wait(epoll, &got, 1, 3) == 0;
    printf("timer %d %d %d %d\n", is_set, sum >= 10, micros >= 9900, stopped);
    close(file);
    close(epoll);
}

int main(int count, char **words) {
    char path[64];
    if (count > 1) {
        connects_each_time = !strcmp(words[1], "connects");
        serve_by_threads();
        return 0;
    }
    serve_by_edges();
    serve_by_threads();
    share_an_epoll();
    ways();
    names();
    corners();
    snprintf(path, sizeof path, "sockets.%d", (int)getpid());
    local(path, (socklen_t)strlen(path) + 1);
    /* A name that begins with a zero is no path. */
    path[0] = 0;
    local(path, (socklen_t)strlen(path + 1) + 1);
    timer();
    return 0;
}
