/* For docs/check.md: counters that all threads write, beside a limit that all read. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#ifdef UNDONE
#define OWN_LINE
#else
#define OWN_LINE _Alignas(64)
#endif

struct service {
    _Atomic long limit;
    long spare[3];
    OWN_LINE _Atomic long hits;
    _Atomic long misses;
};
struct job {
    long number;
    _Atomic long done;
    _Atomic long failed;
};

static struct service service __attribute__((aligned(64)));
static _Thread_local struct job own;
static _Alignas(64) struct job *jobs;
/* Only before the threads. */
static _Alignas(64) _Atomic long idle;

static void *work(void *argument) {
    for (int round = 0; round < 200; round++) {
        if (atomic_load(&service.limit) > round)
            atomic_fetch_add(&service.hits, 1);
        atomic_fetch_add(&jobs[round % 2].done, 1);
        own.number++;
    }
    return argument;
}

int main(void) {
    atomic_store(&service.limit, 1000);
    atomic_store(&idle, 1);
    jobs = malloc(2 * sizeof(struct job));
    pthread_t ids[4];
    for (int thread = 0; thread < 4; thread++)
        pthread_create(&ids[thread], 0, work, 0);
    for (int thread = 0; thread < 4; thread++)
        pthread_join(ids[thread], 0);
    return 0;
}
