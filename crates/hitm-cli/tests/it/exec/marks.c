/* Only what lies between the first two marks is measured. */
#include <hitm.h>
#include <pthread.h>
#include <stdatomic.h>

static _Atomic long before, between;

static void *work(void *argument) {
    pthread_barrier_t *barrier = argument;
    for (int round = 0; round < 100; round++)
        before++;
    if (pthread_barrier_wait(barrier) == PTHREAD_BARRIER_SERIAL_THREAD)
        hitm_begin();
    pthread_barrier_wait(barrier);
    for (int round = 0; round < 100; round++)
        between++;
    if (pthread_barrier_wait(barrier) == PTHREAD_BARRIER_SERIAL_THREAD) {
        hitm_end();
        volatile long after = 0;
        hitm_begin();
        for (int round = 0; round < 100; round++)
            after++;
        hitm_end();
    }
    return 0;
}

int main(void) {
    pthread_t ids[4];
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, 0, 4);
    for (int number = 0; number < 4; number++)
        pthread_create(&ids[number], 0, work, &barrier);
    for (int number = 0; number < 4; number++)
        pthread_join(ids[number], 0);
    return before == 400 && between == 400 ? 0 : 1;
}
