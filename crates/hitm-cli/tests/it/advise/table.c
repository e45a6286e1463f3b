/* A hash table whose size is counted beside what every look-up reads. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef APART
#define OWN_LINE _Alignas(64)
#else
#define OWN_LINE
#endif

struct bucket {
    _Atomic unsigned long key;
};

struct table {
    struct bucket *buckets;
    unsigned long mask;
    OWN_LINE _Atomic unsigned long size;
};

static struct table table __attribute__((aligned(64)));
static pthread_barrier_t start;

static int look_up(unsigned long key) {
    unsigned long at = key * 0x9E3779B97F4A7C15ul >> 40;
    return atomic_load_explicit(&table.buckets[at & table.mask].key, memory_order_relaxed) == key;
}

static void insert(unsigned long key) {
    unsigned long at = key * 0x9E3779B97F4A7C15ul >> 40, free = 0;
    if (atomic_compare_exchange_strong(&table.buckets[at & table.mask].key, &free, key))
        atomic_fetch_add_explicit(&table.size, 1, memory_order_relaxed);
}

static void *work(void *argument) {
    unsigned long key = 1 + (unsigned long)argument * 1000003, found = 0;
    pthread_barrier_wait(&start);
    for (int round = 0; round < 20000; round++, key += 7) {
        if (round % 64 == 0)
            insert(key);
        found += look_up(key);
    }
    return (void *)found;
}

int main(int count, char **words) {
    int threads = count > 1 ? atoi(words[1]) : 4;
    pthread_t ids[256];
    table.mask = (1 << 18) - 1;
    table.buckets = calloc(1 << 18, sizeof(struct bucket));
    pthread_barrier_init(&start, 0, threads);
    for (long number = 0; number < threads; number++)
        pthread_create(&ids[number], 0, work, (void *)number);
    for (int number = 0; number < threads; number++)
        pthread_join(ids[number], 0);
    printf("%lu\n", table.size);
    return 0;
}
