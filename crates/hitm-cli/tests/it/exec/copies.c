/* Copies that a compiler makes with instructions of its own, into lines that other threads write too: each
   thread reads back what it has put there. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { THREADS = 3, ROUNDS = 500 };

struct slot {
    int first, between[3], last;
};

static _Alignas(64) struct slot copied[THREADS];
static _Alignas(64) struct slot returned[THREADS];
/* Nothing but `memcpy` touches these. */
_Alignas(64) struct slot sent[THREADS];

static pthread_barrier_t start;
static int right[THREADS * 16];

/* Under gcc no call comes before these stores. */
static __attribute__((noinline)) void copy(struct slot *to, const struct slot *from) {
    __builtin_memcpy(to, from, sizeof *to);
}

static __attribute__((noinline)) struct slot made(int round) {
    return (struct slot){round, {round, round, round}, round};
}

static void *work(void *argument) {
    long number = (long)argument;
    struct slot *own = &copied[number], *other = &returned[number];
    int sum = 0;
    pthread_barrier_wait(&start);
    for (int round = 1; round <= ROUNDS; round++) {
        struct slot next = made(round);
        sum += own->first == round - 1;
        copy(own, &next);
        sum += own->last == round;
        own->between[1] = 0;
        sum += other->first == round - 1;
        *other = made(round);
        sum += other->last == round;
        other->between[1] = 0;
        memcpy(&sent[number], &next, sizeof next);
    }
    right[number * 16] = sum;
    return 0;
}

int main(void) {
    pthread_t ids[THREADS];
    pthread_barrier_init(&start, 0, THREADS);
    for (long number = 0; number < THREADS; number++)
        pthread_create(&ids[number], 0, work, (void *)number);
    for (int number = 0; number < THREADS; number++)
        pthread_join(ids[number], 0);
    for (int number = 0; number < THREADS; number++)
        printf("%d of %d\n", right[number * 16], 4 * ROUNDS);
    return 0;
}
