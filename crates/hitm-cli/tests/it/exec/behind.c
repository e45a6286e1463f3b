/* A block that begins in the middle of a line, behind another one. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

struct options {
    long limit;
};

struct queue {
    _Atomic long head;
    _Atomic long tail;
};

static struct options *options;
static struct queue *queue;

static void *work(void *argument) {
    long id = (long)argument;
    for (long round = 0; round < options->limit; round++)
        if (id & 1)
            queue->head++;
        else
            queue->tail++;
    return 0;
}

int main(void) {
    pthread_t ids[8];
    options = malloc(sizeof(struct options));
    queue = calloc(1, sizeof(struct queue));
    options->limit = 5000;
    for (long number = 0; number < 8; number++)
        pthread_create(&ids[number], 0, work, (void *)number);
    for (int number = 0; number < 8; number++)
        pthread_join(ids[number], 0);
    printf("%#lx %#lx\n", (unsigned long)&options->limit & 63, (unsigned long)&queue->tail & 63);
}
