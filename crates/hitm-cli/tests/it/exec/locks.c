/* Each kind of lock protects a sum that only exclusion makes right. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 8, ROUNDS = 50 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, recursive;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_spinlock_t spin;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t barrier;
static sem_t semaphore;
static volatile int flag;
static long sums[5];
static int waiting, turn, serial;

static void *work(void *argument) {
    int number = (int)(long)argument;
    if (pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD)
        __atomic_fetch_add(&serial, 1, __ATOMIC_RELAXED);
    for (int round = 0; round < ROUNDS; round++) {
        pthread_mutex_lock(&mutex);
        sums[0]++;
        pthread_mutex_unlock(&mutex);
        pthread_mutex_lock(&recursive);
        pthread_mutex_lock(&recursive);
        sums[1]++;
        pthread_mutex_unlock(&recursive);
        pthread_mutex_unlock(&recursive);
        pthread_rwlock_wrlock(&rwlock);
        sums[2]++;
        pthread_rwlock_unlock(&rwlock);
        pthread_rwlock_rdlock(&rwlock);
        pthread_rwlock_unlock(&rwlock);
        pthread_spin_lock(&spin);
        sums[3]++;
        pthread_spin_unlock(&spin);
        sem_wait(&semaphore);
        sums[4]++;
        sem_post(&semaphore);
        if (round % 10 == 0)
            sched_yield();
    }
    /* One after the other. */
    pthread_mutex_lock(&mutex);
    waiting++;
    while (turn != number)
        pthread_cond_wait(&condition, &mutex);
    turn++;
    pthread_cond_broadcast(&condition);
    pthread_mutex_unlock(&mutex);
    /* The last one ends the others' loops. */
    if (number == THREADS - 1)
        flag = 1;
    while (!flag)
        ;
    return 0;
}

int main(void) {
    pthread_t ids[THREADS];
    pthread_mutexattr_t kind;
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&recursive, &kind);
    pthread_spin_init(&spin, 0);
    sem_init(&semaphore, 0, 1);
    pthread_barrier_init(&barrier, 0, THREADS);
    struct timespec before, after;
    clock_gettime(CLOCK_MONOTONIC, &before);
    for (long number = 0; number < THREADS; number++)
        pthread_create(&ids[number], 0, work, (void *)number);
    for (int number = 0; number < THREADS; number++)
        pthread_join(ids[number], 0);
    usleep(1000);
    clock_gettime(CLOCK_MONOTONIC, &after);
    long micros = (after.tv_sec - before.tv_sec) * 1000000 + (after.tv_nsec - before.tv_nsec) / 1000;
    printf("%ld %ld %ld %ld %ld, turn %d, serial %d, slept %s, busy mutex %s\n", sums[0], sums[1], sums[2], sums[3],
           sums[4], turn, serial, micros >= 1000 ? "yes" : "no",
           pthread_mutex_trylock(&mutex) == 0 && pthread_mutex_trylock(&mutex) == EBUSY ? "yes" : "no");
    return 0;
}
