/*
 * Six loops whose rates were measured on a machine of 448 CPUs: docs/results/programs.md.
 *
 *     curves OPERATION THREADS [MICROSECONDS]
 *
 * Thread i runs on CPU i. The threads start together, count their own operations for so long, and
 * stop together. After every BATCH operations a thread looks whether it is to stop.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BATCH 10
#define ELEMENTS 10
#define LINE 64

static _Alignas(LINE) volatile unsigned long counter;
static _Alignas(LINE) volatile int go;
static _Alignas(LINE) volatile int stop;
static _Alignas(LINE) volatile unsigned long sequence;
static _Alignas(LINE) volatile unsigned long grace_period = 1;
static _Alignas(LINE) int ready;

static __thread volatile unsigned long own_counter;
static __thread volatile unsigned long own_reader;

struct element {
    struct element *next;
    long key;
    long value;
};
static struct element *list;

/* The measured programs have this instruction for a full barrier. */
static inline void full_barrier(void) {
    __asm__ volatile("mfence" : : : "memory");
}

static inline void compiler_barrier(void) {
    __asm__ volatile("" : : : "memory");
}

static inline long look_up(long key) {
    for (struct element *element = list; element; element = element->next)
        if (element->key == key)
            return element->value;
    return -1;
}

static inline long count_atomic(long key) {
    __atomic_fetch_add(&counter, 1, __ATOMIC_RELAXED);
    return key;
}

static inline long count_nonatomic(long key) {
    counter = counter + 1;
    return key;
}

static inline long count_stat(long key) {
    own_counter = own_counter + 1;
    return key;
}

static inline long route_seq(long key) {
    return look_up(key);
}

/*
 * A reader says which grace period it is in before it reads, and that it is in none after it;
 * sections nest. A writer sends signals to readers, so they need no barriers of their own.
 */
static inline long route_rcu(long key) {
    own_reader = own_reader ? own_reader + 1 : grace_period;
    compiler_barrier();
    long found = look_up(key);
    compiler_barrier();
    own_reader = own_reader - 1;
    return found;
}

/* If a writer has begun or ended meanwhile, the look-up may be wrong. */
static inline long route_seqlock(long key) {
    unsigned long before;
    long found;
    do {
        before = sequence & ~1ul;
        full_barrier();
        found = look_up(key);
        full_barrier();
    } while (sequence != before);
    return found;
}

/* One thread's part: returns how many operations it made until it was to stop. */
#define LOOP(operation)                                    \
    static long loop_##operation(void) {                   \
        long count = 0, wrong = 0;                         \
        do {                                               \
            for (long key = 0; key < BATCH; key++)         \
                wrong += operation(key) != key;            \
            count += BATCH;                                \
        } while (!stop);                                   \
        return wrong ? -1 : count;                         \
    }
LOOP(count_atomic)
LOOP(count_nonatomic)
LOOP(count_stat)
LOOP(route_seq)
LOOP(route_rcu)
LOOP(route_seqlock)

static const struct {
    const char *name;
    long (*loop)(void);
} operations[] = {
    {"count_atomic", loop_count_atomic}, {"count_nonatomic", loop_count_nonatomic}, {"count_stat", loop_count_stat},
    {"route_seq", loop_route_seq},       {"route_rcu", loop_route_rcu},             {"route_seqlock", loop_route_seqlock},
};

static struct thread {
    pthread_t id;
    long (*loop)(void);
    double seconds;
    long count;
} threads[448];

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + 1e-9 * time.tv_nsec;
}

static void *work(void *argument) {
    struct thread *thread = argument;
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET(thread - threads, &cpus);
    pthread_setaffinity_np(pthread_self(), sizeof cpus, &cpus);
    if (look_up(ELEMENTS - 1) != ELEMENTS - 1) /* The list comes to this CPU. */
        abort();
    __atomic_fetch_add(&ready, 1, __ATOMIC_RELEASE);
    while (!go)
        ;
    double begin = now();
    thread->count = thread->loop();
    thread->seconds = now() - begin;
    return 0;
}

int main(int words, char **word) {
    int count = words > 2 ? atoi(word[2]) : 0, micros = words > 3 ? atoi(word[3]) : 20;
    if (count < 1 || count > 448 || micros < 1) {
        fprintf(stderr, "curves OPERATION THREADS [MICROSECONDS]: from 1 to 448 threads\n");
        return 2;
    }
    long (*loop)(void) = 0;
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++)
        if (!strcmp(word[1], operations[i].name))
            loop = operations[i].loop;
    if (!loop) {
        fprintf(stderr, "%s: no operation\n", word[1]);
        return 2;
    }
    for (long key = ELEMENTS - 1; key >= 0; key--) {
        struct element *element = malloc(sizeof *element);
        *element = (struct element){list, key, key};
        list = element;
    }
    for (int i = 0; i < count; i++) {
        threads[i].loop = loop;
        pthread_create(&threads[i].id, 0, work, &threads[i]);
    }
    while (__atomic_load_n(&ready, __ATOMIC_ACQUIRE) < count)
        usleep(50);
    go = 1;
    usleep(micros);
    stop = 1;
    double nanos = 0, rate = 0;
    for (int i = 0; i < count; i++) {
        pthread_join(threads[i].id, 0);
        if (threads[i].count < 0)
            return 1;
        nanos += 1e9 * threads[i].seconds / threads[i].count / count;
        rate += 1e-3 * threads[i].count / threads[i].seconds;
    }
    printf("%s, %d threads: ns per operation %.3f, operations per ms %.1f\n", word[1], count, nanos, rate);
}
