// Threads that take an MCS lock in turn, until the time is over.
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { MOST = 512 };

struct node {
    _Alignas(64) _Atomic(struct node *) next;
    atomic_int waits;
};

static _Alignas(64) _Atomic(struct node *) last;
static _Alignas(64) long taken;
static _Alignas(64) atomic_int is_over;
static struct node nodes[MOST];
static pthread_barrier_t start;

static void *work(void *argument) {
    struct node *own = argument;
    pthread_barrier_wait(&start);
    while (!atomic_load_explicit(&is_over, memory_order_relaxed)) {
        atomic_store_explicit(&own->next, 0, memory_order_relaxed);
        atomic_store_explicit(&own->waits, 1, memory_order_relaxed);
        struct node *before = atomic_exchange(&last, own);
        if (before) {
            atomic_store_explicit(&before->next, own, memory_order_release);
            while (atomic_load_explicit(&own->waits, memory_order_acquire))
                __builtin_ia32_pause();
        }
        taken++;
        struct node *next = atomic_load_explicit(&own->next, memory_order_acquire), *alone = own;
        if (!next && !atomic_compare_exchange_strong(&last, &alone, 0))
            while (!(next = atomic_load_explicit(&own->next, memory_order_acquire)))
                __builtin_ia32_pause();
        if (next)
            atomic_store_explicit(&next->waits, 0, memory_order_release);
    }
    return 0;
}

int main(int count, char **words) {
    int threads = count > 1 ? atoi(words[1]) : 4;
    pthread_t ids[MOST];
    pthread_barrier_init(&start, 0, threads + 1);
    for (int number = 0; number < threads; number++)
        pthread_create(&ids[number], 0, work, &nodes[number]);
    pthread_barrier_wait(&start);
    usleep(count > 2 ? atoi(words[2]) : 1000);
    is_over = 1;
    for (int number = 0; number < threads; number++)
        pthread_join(ids[number], 0);
    printf("%ld\n", taken);
}
