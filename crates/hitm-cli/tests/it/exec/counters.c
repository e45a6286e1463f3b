/* Counters of threads that share lines, beside one that has its own. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

struct slot {
    volatile unsigned long packets;
    volatile unsigned long bytes;
};

static struct {
    struct slot slots[64];
    char unused[64];
    _Atomic unsigned long total;
} shared __attribute__((aligned(64)));

struct node {
    long key;
    volatile long value;
};

static struct node *nodes;
static __thread unsigned long own;
static int rounds = 5000;
static pthread_barrier_t start;

static void count(struct slot *slot) {
    slot->packets++;
    slot->bytes += 64;
}

static void *work(void *argument) {
    long number = (long)argument;
    pthread_barrier_wait(&start);
    for (int round = 0; round < rounds; round++) {
        count(&shared.slots[number]);
        nodes[number].value++;
        own++;
    }
    atomic_fetch_add(&shared.total, own);
    return (void *)own;
}

int main(int count, char **words) {
    int threads = count > 1 ? atoi(words[1]) : 4;
    pthread_t ids[64];
    nodes = calloc(64, sizeof(struct node));
    pthread_barrier_init(&start, 0, threads);
    for (long number = 0; number < threads; number++)
        pthread_create(&ids[number], 0, work, (void *)number);
    unsigned long sum = 0;
    for (int number = 0; number < threads; number++) {
        void *value;
        pthread_join(ids[number], &value);
        sum += (unsigned long)value;
    }
    printf("%d threads, %lu rounds, total %lu\n", threads, sum, shared.total);
    return sum == shared.total ? 0 : 1;
}
