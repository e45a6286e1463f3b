// Threads that wait in turn for a word, whose loads are inline assembly: in a loop of C, with a
// load of C beside it, and in a loop of assembly. The last loop ends by its count, in a register
// that calls do not keep.
#include <pthread.h>
#include <stdio.h>

enum { THREADS = 16, ROUNDS = 4, COUNT = 100000 };

static struct { _Alignas(64) unsigned now; } turn, with_limit, inside, never;
static struct { _Alignas(64) volatile unsigned turns; } limit = {.turns = THREADS * ROUNDS};
static pthread_barrier_t start;

static unsigned load(const unsigned *word) {
    unsigned value;
    __asm__ volatile("movl %1, %0" : "=r"(value) : "m"(*word) : "memory");
    return value;
}

static void store(unsigned *word, unsigned value) {
    __asm__ volatile("movl %1, %0" : "=m"(*word) : "r"(value) : "memory");
}

static void *work(void *argument) {
    unsigned number = (unsigned)(long)argument;
    pthread_barrier_wait(&start);
    for (unsigned round = 0; round < ROUNDS; round++) {
        unsigned mine = round * THREADS + number;
        while (load(&turn.now) != mine)
            __asm__ volatile("pause");
        store(&turn.now, mine + 1);
        while (load(&with_limit.now) != mine && mine < limit.turns)
            ;
        store(&with_limit.now, mine + 1);
        __asm__ volatile("1:\tpause\n\tcmpl %1, %0\n\tjne 1b" : : "m"(inside.now), "r"(mine) : "memory", "cc");
        store(&inside.now, mine + 1);
    }
    return 0;
}

int main(void) {
    pthread_t ids[THREADS];
    pthread_barrier_init(&start, 0, THREADS);
    for (long number = 0; number < THREADS; number++)
        pthread_create(&ids[number], 0, work, (void *)number);
    for (int number = 0; number < THREADS; number++)
        pthread_join(ids[number], 0);
    unsigned left = COUNT;
    __asm__ volatile("1:\tcmpl $0, %1\n\tjne 2f\n\tdecl %0\n\tjnz 1b\n2:" : "+c"(left) : "m"(never.now) : "memory", "cc");
    printf("%u %u %u, left %u\n", turn.now, with_limit.now, inside.now, left);
}
