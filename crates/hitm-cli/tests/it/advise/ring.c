/* A ring whose head and tail share a line: each side waits for the other side's writes. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#ifdef APART
#define OWN_LINE _Alignas(64)
#else
#define OWN_LINE
#endif

#define SLOTS 256

struct ring {
    _Atomic unsigned long head;
    OWN_LINE _Atomic unsigned long tail;
    OWN_LINE unsigned long slots[SLOTS];
};

static struct ring ring __attribute__((aligned(64)));
static const unsigned long rounds = 60000;

static void *produce(void *unused) {
    for (unsigned long round = 0; round < rounds; round++) {
        while (round - atomic_load_explicit(&ring.head, memory_order_acquire) == SLOTS)
            ;
        ring.slots[round % SLOTS] = round;
        atomic_store_explicit(&ring.tail, round + 1, memory_order_release);
    }
    return unused;
}

static void *consume(void *unused) {
    unsigned long sum = 0;
    for (unsigned long round = 0; round < rounds; round++) {
        while (round == atomic_load_explicit(&ring.tail, memory_order_acquire))
            ;
        sum += ring.slots[round % SLOTS];
        atomic_store_explicit(&ring.head, round + 1, memory_order_release);
    }
    printf("%lu\n", sum);
    return unused;
}

int main(void) {
    pthread_t producer, consumer;
    pthread_create(&producer, 0, produce, 0);
    pthread_create(&consumer, 0, consume, 0);
    pthread_join(producer, 0);
    pthread_join(consumer, 0);
    return 0;
}
