/* Priorities of threads, and mutexes that inherit them: how long an urgent thread waits for a mutex
   while a thread of middle urgency runs. Who wakes a more urgent thread of its CPU makes way for it at once. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t mutex;
static long waited;

static long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000 + time.tv_nsec;
}

static void work_for(long nanos) {
    for (long until = now() + nanos; now() < until;)
        ;
}

static void *low(void *unused) {
    pthread_mutex_lock(&mutex);
    work_for(2000000);
    pthread_mutex_unlock(&mutex);
    return unused;
}

static void *middle(void *unused) {
    usleep(500);
    work_for(10000000);
    return unused;
}

static void *high(void *unused) {
    usleep(1000);
    long from = now();
    pthread_mutex_lock(&mutex);
    waited = now() - from;
    pthread_mutex_unlock(&mutex);
    return unused;
}

static sem_t turn;
static volatile int woken_ran;

static void *woken(void *unused) {
    sem_wait(&turn);
    woken_ran = 1;
    return unused;
}

static void *waker(void *unused) {
    usleep(1000);
    sem_post(&turn);
    printf("made way %d\n", woken_ran);
    return unused;
}

static int start(pthread_t *id, int policy, int priority, void *(*code)(void *)) {
    pthread_attr_t attributes;
    struct sched_param level = {.sched_priority = priority};
    cpu_set_t first;
    CPU_ZERO(&first);
    CPU_SET(1, &first);
    pthread_attr_init(&attributes);
    pthread_attr_setinheritsched(&attributes, PTHREAD_EXPLICIT_SCHED);
    pthread_attr_setschedpolicy(&attributes, policy);
    pthread_attr_setschedparam(&attributes, &level);
    pthread_attr_setaffinity_np(&attributes, sizeof first, &first);
    pthread_attr_setstacksize(&attributes, 128 << 10);
    return pthread_create(id, &attributes, code, 0);
}

static void *classes(void *unused) {
    int policy;
    struct sched_param level;
    cpu_set_t set;
    pthread_attr_t attributes;
    size_t bytes;
    void *low;
    char here;
    pthread_getschedparam(pthread_self(), &policy, &level);
    sched_getaffinity(0, sizeof set, &set);
    pthread_getattr_np(pthread_self(), &attributes);
    pthread_attr_getstack(&attributes, &low, &bytes);
    printf("policy %d, level %d, scheduler %d, cpus %d, on %d, stack %s\n", policy, level.sched_priority,
           sched_getscheduler(0), CPU_COUNT(&set), sched_getcpu(),
           (char *)low < &here && &here < (char *)low + bytes && bytes >= 128 << 10 ? "right" : "wrong");
    level.sched_priority = 7;
    pthread_setschedparam(pthread_self(), SCHED_RR, &level);
    pthread_setschedprio(pthread_self(), 8);
    sched_getparam(0, &level);
    printf("policy %d, level %d\n", sched_getscheduler(0), level.sched_priority);
    level.sched_priority = 0;
    sched_setscheduler(0, SCHED_OTHER, &level);
    setpriority(PRIO_PROCESS, 0, 5);
    printf("nice %d\n", getpriority(PRIO_PROCESS, 0));
    return unused;
}

int main(int count, char **words) {
    pthread_t ids[3];
    pthread_mutexattr_t kind;
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_setprotocol(&kind, count > 1 && !strcmp(words[1], "inherit") ? PTHREAD_PRIO_INHERIT
                                                                                   : PTHREAD_PRIO_NONE);
    pthread_mutex_init(&mutex, &kind);
    if (start(&ids[0], SCHED_FIFO, 3, classes)) {
        printf("not permitted\n");
        return 1;
    }
    pthread_join(ids[0], 0);
    sem_init(&turn, 0, 0);
    start(&ids[0], SCHED_FIFO, 3, woken);
    start(&ids[1], SCHED_FIFO, 1, waker);
    pthread_join(ids[0], 0);
    pthread_join(ids[1], 0);
    start(&ids[0], SCHED_FIFO, 1, low);
    start(&ids[1], SCHED_FIFO, 2, middle);
    start(&ids[2], SCHED_FIFO, 3, high);
    for (int number = 0; number < 3; number++)
        pthread_join(ids[number], 0);
    printf("waited %s\n", waited < 4000000 ? "briefly" : waited > 9000000 ? "long" : "strangely");
    return 0;
}
