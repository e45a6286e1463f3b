/* Counters of threads side by side: each add takes the line from its neighbours. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef APART
#define OWN_LINE _Alignas(64)
#else
#define OWN_LINE
#endif

struct counter {
    OWN_LINE volatile unsigned long value;
};

static struct counter counters[64] __attribute__((aligned(64)));
static pthread_barrier_t start;

static void *work(void *argument) {
    struct counter *own = &counters[(long)argument];
    pthread_barrier_wait(&start);
    for (int round = 0; round < 20000; round++)
        own->value++;
    return 0;
}

int main(int count, char **words) {
    int threads = count > 1 ? atoi(words[1]) : 4;
    pthread_t ids[64];
    unsigned long sum = 0;
    pthread_barrier_init(&start, 0, threads);
    for (long number = 0; number < threads; number++)
        pthread_create(&ids[number], 0, work, (void *)number);
    for (int number = 0; number < threads; number++) {
        pthread_join(ids[number], 0);
        sum += counters[number].value;
    }
    printf("%lu\n", sum);
    return sum == 20000ul * threads ? 0 : 1;
}
