/* Waits that end at a time, joins that do not wait, mutexes that inherit priorities, and futexes. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 8 };

static pthread_mutex_t inheriting, nesting, checking;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static sem_t semaphore;
static uint32_t one, two, lock_word;
static long sums[3], coming, woken;

static long futex(uint32_t *word, int operation, uint32_t value, uintptr_t fourth, uint32_t *other, uint32_t last) {
    long result = syscall(SYS_futex, word, operation | FUTEX_PRIVATE_FLAG, value, fourth, other, last);
    return result < 0 ? -errno : result;
}

static struct timespec after(clockid_t clock, long nanos) {
    struct timespec time;
    clock_gettime(clock, &time);
    time.tv_nsec += nanos;
    time.tv_sec += time.tv_nsec / 1000000000;
    time.tv_nsec %= 1000000000;
    return time;
}

static void *work(void *argument) {
    for (int round = 0; round < 50; round++) {
        pthread_mutex_lock(&inheriting);
        sums[0]++;
        pthread_mutex_unlock(&inheriting);
        pthread_mutex_lock(&nesting);
        pthread_mutex_lock(&nesting);
        sums[1]++;
        pthread_mutex_unlock(&nesting);
        pthread_mutex_unlock(&nesting);
        /* A mutex of the program's own, with the kernel's help. */
        uint32_t expected = 0;
        uint32_t own = (uint32_t)syscall(SYS_gettid);
        if (!__atomic_compare_exchange_n(&lock_word, &expected, own, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
            while (futex(&lock_word, FUTEX_LOCK_PI, 0, 0, 0, 0) != 0)
                ;
        sums[2]++;
        expected = own;
        if (!__atomic_compare_exchange_n(&lock_word, &expected, 0, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
            futex(&lock_word, FUTEX_UNLOCK_PI, 0, 0, 0, 0);
    }
    return argument;
}

static void *wait_for(void *argument) {
    uint32_t bit = (uint32_t)(uintptr_t)argument;
    __atomic_fetch_add(&coming, 1, __ATOMIC_RELAXED);
    while (futex(&one, FUTEX_WAIT_BITSET, 0, 0, 0, bit) != 0)
        ;
    __atomic_fetch_add(&woken, 1, __ATOMIC_RELAXED);
    return 0;
}

static void *hold(void *unused) {
    pthread_mutex_lock(&inheriting);
    sem_post(&semaphore);
    usleep(20000);
    pthread_mutex_unlock(&inheriting);
    return unused;
}

static void wait_until(long expected) {
    for (int round = 0; round < 1000 && __atomic_load_n(&woken, __ATOMIC_RELAXED) != expected; round++)
        usleep(100);
}

static void timed(void) {
    pthread_t id;
    struct timespec time;
    sem_init(&semaphore, 0, 0);
    pthread_create(&id, 0, hold, 0);
    sem_wait(&semaphore);
    time = after(CLOCK_REALTIME, 1000000);
    int mutex = pthread_mutex_timedlock(&inheriting, &time);
    int tried = pthread_mutex_trylock(&inheriting);
    int join = pthread_tryjoin_np(id, 0);
    time = after(CLOCK_REALTIME, 1000000);
    int until = pthread_timedjoin_np(id, 0, &time);
    time = after(CLOCK_REALTIME, 1000000);
    int taken = sem_timedwait(&semaphore, &time) ? errno : 0;
    pthread_rwlock_wrlock(&rwlock);
    time = after(CLOCK_MONOTONIC, 1000000);
    int reader = pthread_rwlock_clockrdlock(&rwlock, CLOCK_MONOTONIC, &time);
    pthread_rwlock_unlock(&rwlock);
    pthread_mutex_lock(&checking);
    time = after(CLOCK_MONOTONIC, 1000000);
    int changed = pthread_cond_clockwait(&condition, &checking, CLOCK_MONOTONIC, &time);
    int again = pthread_mutex_lock(&checking);
    pthread_mutex_unlock(&checking);
    int free = pthread_mutex_unlock(&checking);
    pthread_join(id, 0);
    printf("timed %d %d %d %d %d %d %d, again %d %d\n", mutex == ETIMEDOUT, tried == EBUSY, join == EBUSY,
           until == ETIMEDOUT, taken == ETIMEDOUT, reader != 0, changed == ETIMEDOUT, again == EDEADLK,
           free == EPERM);
}

static pthread_mutex_t robust;

static void *leave_locked(void *unused) {
    pthread_mutex_lock(&robust);
    return unused;
}

/* The owner of a robust mutex ends: the next one is told, and makes it consistent or not. */
static void robustly(void) {
    pthread_t id;
    pthread_mutexattr_t kind;
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&robust, &kind);
    int before = pthread_mutex_lock(&robust);
    pthread_mutex_unlock(&robust);
    pthread_create(&id, 0, leave_locked, 0);
    pthread_join(id, 0);
    int told = pthread_mutex_lock(&robust), consistent = pthread_mutex_consistent(&robust);
    int again = pthread_mutex_consistent(&robust);
    pthread_mutex_unlock(&robust);
    int after = pthread_mutex_trylock(&robust);
    pthread_mutex_unlock(&robust);
    pthread_create(&id, 0, leave_locked, 0);
    pthread_join(id, 0);
    int second = pthread_mutex_trylock(&robust);
    pthread_mutex_unlock(&robust);
    printf("robust %d %d %d %d %d %d %d\n", before, told == EOWNERDEAD, consistent, again == EINVAL, after,
           second == EOWNERDEAD, pthread_mutex_lock(&robust) == ENOTRECOVERABLE);
}

int main(void) {
    pthread_t ids[THREADS];
    pthread_mutexattr_t kind;
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setprotocol(&kind, PTHREAD_PRIO_INHERIT);
    pthread_mutex_init(&inheriting, &kind);
    pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_ERRORCHECK);
    pthread_mutex_init(&checking, &kind);
    pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&nesting, &kind);
    for (long number = 0; number < THREADS; number++)
        pthread_create(&ids[number], 0, work, (void *)number);
    for (int number = 0; number < THREADS; number++)
        pthread_join(ids[number], 0);
    printf("sums %ld %ld %ld, word %u\n", sums[0], sums[1], sums[2], lock_word);
    timed();
    for (uintptr_t number = 0; number < 4; number++)
        pthread_create(&ids[number], 0, wait_for, (void *)(uintptr_t)(number < 2 ? 1 : 2));
    /* A waiter that has not reached the kernel yet would not be woken. */
    while (__atomic_load_n(&coming, __ATOMIC_RELAXED) != 4)
        usleep(100);
    usleep(100000);
    long first = futex(&one, FUTEX_WAKE_BITSET, 100, 0, 0, 1);
    wait_until(2);
    /* One more goes on, and one moves to the other word. */
    long wrong = futex(&one, FUTEX_CMP_REQUEUE, 1, 100, &two, 7);
    long moved = futex(&one, FUTEX_CMP_REQUEUE, 1, 100, &two, 0);
    wait_until(3);
    long none = futex(&one, FUTEX_WAKE, 100, 0, 0, 0);
    /* Adds 3 to the second word and wakes there, since it held 0. */
    long both = futex(&one, FUTEX_WAKE_OP, 1, 1, &two, FUTEX_OP(FUTEX_OP_ADD, 3, FUTEX_OP_CMP_EQ, 0));
    wait_until(4);
    for (int number = 0; number < 4; number++)
        pthread_join(ids[number], 0);
    robustly();
    printf("futex %ld %d %ld %ld %ld, words %u %u, woken %ld\n", first, wrong == -EAGAIN, moved, none, both, one, two,
           woken);
    return 0;
}
