/* Threads that write to the program's arguments and to its environment. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define THREADS 4

static volatile char *word, *variable;
static pthread_barrier_t start;

static void *work(void *argument) {
    long number = (long)argument;
    pthread_barrier_wait(&start);
    for (int round = 0; round < 1000; round++) {
        word[number]++;
        variable[number]++;
    }
    return 0;
}

int main(int count, char **words) {
    pthread_t threads[THREADS];
    word = count > 1 ? words[1] : 0;
    variable = getenv("HITM_TEST");
    if (!word || !variable)
        return 1;
    printf("the program %s its setting\n", getenv("HITM_EXEC") ? "sees" : "does not see");
    printf("arguments at %d and %d of their lines\n", (int)((long)words % 64), (int)((long)word % 64));
    pthread_barrier_init(&start, 0, THREADS);
    for (long number = 0; number < THREADS; number++)
        pthread_create(&threads[number], 0, work, (void *)number);
    for (int number = 0; number < THREADS; number++)
        pthread_join(threads[number], 0);
    return 0;
}
