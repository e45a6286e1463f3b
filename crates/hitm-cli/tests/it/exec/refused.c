/* What a simulated process cannot do, each by its name. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

static FILE *stream;
static int pipe_files[2];

static void *print(void *unused) {
    for (int line = 0; line < 1000; line++)
        fprintf(stream, "%0100d\n", line);
    return unused;
}

int main(int count, char **words) {
    const char *what = count > 1 ? words[1] : "";
    if (!strcmp(what, "cancel"))
        pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, 0);
    if (!strcmp(what, "protected")) {
        pthread_mutex_t mutex;
        pthread_mutexattr_t kind;
        pthread_mutexattr_init(&kind);
        pthread_mutexattr_setprotocol(&kind, PTHREAD_PRIO_PROTECT);
        pthread_mutex_init(&mutex, &kind);
        pthread_mutex_lock(&mutex);
    }
    char *list[] = {"echo", "another", "program", 0}, *none[] = {0};
    pid_t child;
    if (!strcmp(what, "posix_spawn"))
        posix_spawn(&child, "/bin/echo", 0, 0, list, none);
    if (!strcmp(what, "posix_spawnp"))
        posix_spawnp(&child, "echo", 0, 0, list, none);
    if (!strcmp(what, "execv"))
        execv("/bin/echo", list);
    if (!strcmp(what, "execve"))
        execve("/bin/echo", list, none);
    if (!strcmp(what, "execvp"))
        execvp("echo", list);
    if (!strcmp(what, "execvpe"))
        execvpe("echo", list, none);
    if (!strcmp(what, "fexecve"))
        fexecve(open("/bin/echo", O_RDONLY), list, none);
    if (!strcmp(what, "execveat"))
        execveat(AT_FDCWD, "/bin/echo", list, none, 0);
    /* More words than there are registers for. */
    if (!strcmp(what, "execl"))
        execl("/bin/echo", "echo", "a", "b", "c", "d", "e", "f", "g", (char *)0);
    if (!strcmp(what, "execlp"))
        execlp("echo", "echo", "a", "b", "c", "d", "e", "f", "g", (char *)0);
    if (!strcmp(what, "execle"))
        execle("/bin/echo", "echo", "a", "b", "c", "d", "e", "f", "g", (char *)0, none);
    if (!strcmp(what, "system"))
        return system("echo another program");
    if (!strcmp(what, "popen")) {
        char text[64];
        FILE *from = popen("echo another program", "r");
        return !fgets(text, sizeof text, from) || fputs(text, stdout) < 0 || pclose(from);
    }
    if (!strcmp(what, "fork"))
        fork();
    if (!strcmp(what, "vfork") && !vfork())
        _exit(0);
    if (!strcmp(what, "daemon"))
        daemon(1, 1);
    if (!strcmp(what, "shared"))
        shm_open("/hitm", O_RDWR, 0600);
    if (!strcmp(what, "segment"))
        shmget(1234, 4096, 0600);
    if (!strcmp(what, "robust")) {
        pthread_mutex_t mutex;
        pthread_mutexattr_t kind;
        pthread_mutexattr_init(&kind);
        pthread_mutexattr_setprotocol(&kind, PTHREAD_PRIO_INHERIT);
        pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
        pthread_mutex_init(&mutex, &kind);
        pthread_mutex_lock(&mutex);
    }
    if (!strcmp(what, "code"))
        mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!strcmp(what, "socket"))
        socket(AF_INET, SOCK_DGRAM, 0);
    if (!strcmp(what, "network")) {
        /* An address of documentation (RFC 5737). */
        struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(80)};
        address.sin_addr.s_addr = inet_addr("192.0.2.1");
        connect(socket(AF_INET, SOCK_STREAM, 0), (struct sockaddr *)&address, sizeof address);
    }
    if (!strcmp(what, "copy")) {
        int files[2];
        pipe(files);
        sendfile(files[1], open(".", O_RDONLY), 0, 1);
    }
    if (!strcmp(what, "poll")) {
        /* A folder has no events. */
        struct pollfd one = {open(".", O_RDONLY), POLLPRI, 0};
        poll(&one, 1, -1);
    }
    if (!strcmp(what, "kill"))
        kill(123, SIGTERM);
    if (!strcmp(what, "clone"))
        syscall(SYS_clone, 0, 0, 0, 0, 0);
    if (!strcmp(what, "rings"))
        syscall(SYS_io_uring_setup, 1, 0);
    if (!strcmp(what, "stream")) {
        pthread_t id;
        pipe(pipe_files);
        stream = fdopen(pipe_files[1], "w");
        pthread_create(&id, 0, print, 0);
        pthread_create(&id, 0, print, 0);
        for (char part[512]; read(pipe_files[0], part, sizeof part) > 0;)
            usleep(100);
    }
    if (!strcmp(what, "profile")) {
        struct itimerval time = {{0, 0}, {1, 0}};
        setitimer(ITIMER_PROF, &time, 0);
    }
    printf("not refused\n");
    return 0;
}
