// Objects that reports name: thread-local variables, variables on stacks, blocks of which the pointer has the type, a
// block that the program names, and memory that several blocks had one after the other.
#include <hitm.h>
#include <pthread.h>
#include <stdlib.h>

enum { THREADS = 8, ROUNDS = 300 };

struct counters {
    long padding[2];
    volatile long hits;
};
struct station {
    long padding;
    volatile long trains;
};
struct early {
    volatile long used;
    long padding[15];
};
struct late {
    long padding;
    volatile long taken;
    long rest[14];
};

static __thread struct counters own __attribute__((aligned(64)));
static struct counters *of_all[THREADS];
static struct station *stations;
static volatile long *plain;
static volatile long *on_stack, *deeper;
static _Alignas(64) volatile long alone;
static struct late *late;
static pthread_barrier_t start;

// Its caller's type is in no argument.
static void *get(size_t size) {
    return aligned_alloc(64, size);
}

static void *work(void *argument) {
    long number = (long)argument;
    of_all[number] = &own;
    pthread_barrier_wait(&start);
    for (int round = 0; round < ROUNDS; round++) {
        of_all[(number + round) % THREADS]->hits++;
        stations[1].trains++;
        plain[3]++;
        on_stack[2]++;
        deeper[0]++;
        alone++;
        late->taken++;
    }
    // A thread's storage ends with it.
    pthread_barrier_wait(&start);
    return 0;
}

// Makes the threads, with variables of its own that they share.
static void __attribute__((noinline)) start_all(pthread_t *ids) {
    struct {
        long padding[8];
        volatile long calls;
        long rest[7];
    } desk;
    desk.calls = 0;
    deeper = &desk.calls;
    for (long number = 0; number < THREADS; number++)
        pthread_create(&ids[number], 0, work, (void *)number);
    for (int number = 0; number < THREADS; number++)
        pthread_join(ids[number], 0);
}

int main(void) {
    volatile long hall[16] = {0};
    on_stack = hall;
    size_t size = 4 * sizeof(struct station);
    stations =
        aligned_alloc(64,
                      size);
    plain = get(64);
    hitm_name((void *)plain, 64, "my tallies");
    struct early *early = malloc(sizeof(struct early));
    early->used++;
    free(early);
    late = malloc(sizeof(struct late));
    if ((void *)late != (void *)early)
        abort();
    pthread_t ids[THREADS];
    pthread_barrier_init(&start, 0, THREADS);
    start_all(ids);
    // The last block there is another one, for a moment.
    free(late);
    early = malloc(sizeof(struct early));
    early->used++;
}
