/* Threads that contend, in two turns; then the first thread alone touches so many MB. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

static _Atomic long shared;

static void *work(void *unused) {
    for (int round = 0; round < 500; round++)
        shared++;
    return unused;
}

int main(int count, char **words) {
    for (int turn = 0; turn < 2; turn++) {
        pthread_t ids[4];
        for (int number = 0; number < 4; number++)
            pthread_create(&ids[number], 0, work, 0);
        for (int number = 0; number < 4; number++)
            pthread_join(ids[number], 0);
    }
    long bytes = count > 1 ? atol(words[1]) << 20 : 0;
    volatile char *data = malloc(bytes + 1);
    for (long at = 0; at < bytes; at += 64)
        data[at] = 1;
    return shared == 4000 ? 0 : 1;
}
