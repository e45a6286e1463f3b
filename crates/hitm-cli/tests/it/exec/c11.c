/* Threads of C11, what is done once, and values of threads with destructors. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <threads.h>

enum { THREADS = 8 };

static mtx_t mutex;
static cnd_t all_here;
static once_flag once = ONCE_FLAG_INIT;
static pthread_key_t key;
static int sum, here, done_once, values_ended;

static void initialise(void) {
    /* Others come meanwhile. */
    thrd_yield();
    done_once++;
}

static void end_value(void *value) {
    mtx_lock(&mutex);
    values_ended += *(int *)value;
    mtx_unlock(&mutex);
    free(value);
}

static int work(void *argument) {
    call_once(&once, initialise);
    int *value = malloc(sizeof(int));
    *value = done_once;
    pthread_setspecific(key, value);
    for (int round = 0; round < 50; round++) {
        mtx_lock(&mutex);
        sum++;
        mtx_unlock(&mutex);
    }
    mtx_lock(&mutex);
    if (++here == THREADS)
        cnd_broadcast(&all_here);
    while (here < THREADS)
        cnd_wait(&all_here, &mutex);
    mtx_unlock(&mutex);
    return (int)(long)argument;
}

int main(void) {
    thrd_t ids[THREADS];
    int result = 0;
    mtx_init(&mutex, mtx_plain);
    cnd_init(&all_here);
    pthread_key_create(&key, end_value);
    for (long number = 0; number < THREADS; number++)
        thrd_create(&ids[number], work, (void *)number);
    for (int number = 0; number < THREADS; number++) {
        int value;
        thrd_join(ids[number], &value);
        result += value;
    }
    printf("sum %d, once %d, values ended %d, result %d\n", sum, done_once, values_ended, result);
    return 0;
}
