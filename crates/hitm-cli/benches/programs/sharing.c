// Threads that write counters of their own, eight to a line.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST = 512 };

static struct {
    volatile long times;
} counters[MOST] __attribute__((aligned(64)));
static pthread_barrier_t start;
static long rounds;

static void *work(void *argument) {
    long number = (long)argument;
    pthread_barrier_wait(&start);
    for (long round = 0; round < rounds; round++)
        counters[number].times++;
    return 0;
}

int main(int count, char **words) {
    int threads = count > 1 ? atoi(words[1]) : 4;
    rounds = count > 2 ? atol(words[2]) : 1000;
    pthread_t ids[MOST];
    pthread_barrier_init(&start, 0, threads);
    for (long number = 0; number < threads; number++)
        pthread_create(&ids[number], 0, work, (void *)number);
    for (int number = 0; number < threads; number++)
        pthread_join(ids[number], 0);
    printf("%ld\n", threads * counters[0].times);
}
