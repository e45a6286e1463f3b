// Three hundred blocks of one type, each of which all threads write.
#include <pthread.h>
#include <stdlib.h>

struct account {
    long entries[2];
    char name[64];
};

enum { ACCOUNTS = 300, THREADS = 4 };

static struct account *accounts[ACCOUNTS];

static void *enter(void *of_thread) {
    long entry = (long)of_thread % 2;
    for (int number = 0; number < ACCOUNTS; number++)
        __atomic_fetch_add(&accounts[number]->entries[entry], 1, __ATOMIC_RELAXED);
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    for (int number = 0; number < ACCOUNTS; number++)
        accounts[number] = calloc(1, sizeof(struct account));
    for (long number = 0; number < THREADS; number++)
        pthread_create(&threads[number], NULL, enter, (void *)number);
    for (int number = 0; number < THREADS; number++)
        pthread_join(threads[number], NULL);
    return 0;
}
