/* Threads that are cancelled: in each kind of wait, between waits, and where they may not be. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static sem_t semaphore;
static int files[2], listener;
static volatile int begun, cleaned, went_on;

static void clean(void *unused) {
    (void)unused;
    cleaned++;
}

static void unlock(void *locked) {
    cleaned++;
    pthread_mutex_unlock(locked);
}

static void *forever(void *unused) {
    for (;;)
        sleep(100);
    return unused;
}

static void wait_in(const char *what) {
    char byte;
    if (!strcmp(what, "sleep"))
        sleep(100);
    if (!strcmp(what, "nanosleep"))
        nanosleep(&(struct timespec){100, 0}, 0);
    if (!strcmp(what, "read"))
        read(files[0], &byte, 1);
    if (!strcmp(what, "recvfrom"))
        recvfrom(files[0], &byte, 1, 0, 0, 0);
    if (!strcmp(what, "poll"))
        poll(&(struct pollfd){files[0], POLLIN, 0}, 1, -1);
    if (!strcmp(what, "epoll")) {
        struct epoll_event event;
        epoll_wait(epoll_create1(0), &event, 1, -1);
    }
    if (!strcmp(what, "accept"))
        accept(listener, 0, 0);
    if (!strcmp(what, "semaphore"))
        sem_wait(&semaphore);
    if (!strcmp(what, "pause"))
        pause();
    if (!strcmp(what, "sigwait")) {
        sigset_t set;
        int signal;
        sigemptyset(&set);
        sigaddset(&set, SIGUSR1);
        pthread_sigmask(SIG_BLOCK, &set, 0);
        sigwait(&set, &signal);
    }
    if (!strcmp(what, "join")) {
        pthread_t other;
        pthread_create(&other, 0, forever, 0);
        pthread_join(other, 0);
    }
    if (!strcmp(what, "test"))
        for (;;)
            pthread_testcancel();
    if (!strcmp(what, "condition")) {
        pthread_mutex_lock(&mutex);
        pthread_cleanup_push(unlock, &mutex);
        for (;;)
            pthread_cond_wait(&condition, &mutex);
        pthread_cleanup_pop(0);
    }
}

static void *waits(void *what) {
    pthread_cleanup_push(clean, 0);
    begun = 1;
    wait_in(what);
    pthread_cleanup_pop(0);
    return 0;
}

/* A mutex is no cancellation point, nor is a call where the state forbids it. */
static void *refuses(void *unused) {
    int before;
    begun = 1;
    pthread_mutex_lock(&mutex);
    pthread_mutex_unlock(&mutex);
    went_on++;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    usleep(1000);
    went_on += before == PTHREAD_CANCEL_ENABLE;
    pthread_setcancelstate(before, 0);
    pthread_testcancel();
    went_on = -1;
    return unused;
}

static pthread_key_t key;

static void destroy(void *value) { *(int *)value = 1; }

static void *itself(void *value) {
    pthread_setspecific(key, value);
    pthread_cancel(pthread_self());
    pthread_testcancel();
    return 0;
}

static int is_cancelled(pthread_t thread) {
    void *value = 0;
    pthread_join(thread, &value);
    return value == PTHREAD_CANCELED;
}

int main(void) {
    static const char *const all[] = {"sleep",     "nanosleep", "read",    "recvfrom", "poll", "epoll",     "accept",
                                      "semaphore", "pause",     "sigwait", "join",     "test", "condition"};
    pthread_t thread;
    sem_init(&semaphore, 0, 0);
    socketpair(AF_UNIX, SOCK_STREAM, 0, files);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int length = 1 + sprintf(address.sun_path + 1, "cancels.%d", (int)getpid());
    listener = socket(AF_UNIX, SOCK_STREAM, 0);
    bind(listener, (struct sockaddr *)&address, (socklen_t)(sizeof(sa_family_t) + (size_t)length));
    listen(listener, 1);
    for (unsigned at = 0; at < sizeof all / sizeof *all; at++) {
        begun = cleaned = 0;
        pthread_create(&thread, 0, waits, (void *)all[at]);
        while (!begun)
            usleep(100);
        usleep(3000);
        int sent = pthread_cancel(thread), ended = is_cancelled(thread);
        printf("%s %d %d, cleaned %d\n", all[at], sent, ended, cleaned);
    }
    printf("free %d\n", pthread_mutex_trylock(&mutex));
    begun = 0;
    pthread_create(&thread, 0, refuses, 0);
    while (!begun)
        usleep(100);
    pthread_cancel(thread);
    usleep(1000);
    pthread_mutex_unlock(&mutex);
    int ended = is_cancelled(thread);
    printf("late %d %d\n", ended, went_on);
    int destroyed = 0;
    pthread_key_create(&key, destroy);
    pthread_create(&thread, 0, itself, &destroyed);
    ended = is_cancelled(thread);
    printf("self %d, key %d\n", ended, destroyed);
    return 0;
}
