/* Programs without data races never see an impossible value: the usual litmus tests, each with the
   words of a round on lines of their own. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { THREADS = 4, ROUNDS = 120 };

struct word {
    _Alignas(64) atomic_int value;
};

static struct round {
    struct word flag, x, y, sx, sy, wx, wy, lx, ly, one, gates[4];
    _Alignas(64) char payload[200];
    _Alignas(64) int seen[THREADS][8];
} rounds[ROUNDS];
static pthread_barrier_t barrier;

static int get(struct word *word, memory_order order) { return atomic_load_explicit(&word->value, order); }
static void set(struct word *word, int value, memory_order order) { atomic_store_explicit(&word->value, value, order); }

/* Both caches have the lines: a load finds its line while a store waits for its own. */
static void bring(struct word *one, struct word *other) {
    get(one, memory_order_relaxed);
    get(other, memory_order_relaxed);
}

/* A different delay for each thread in each round. */
static void pause_for(int round, int thread, int most) {
    for (volatile int left = (round * 37 + thread * 101) % most; left > 0; left--)
        ;
}

/* All are here at nearly the same time. */
static void meet(struct word *gate, int count) {
    atomic_fetch_add(&gate->value, 1);
    while (get(gate, memory_order_acquire) < count)
        ;
}

static void one_round(struct round *r, int round, int thread) {
    int *seen = r->seen[thread];
    /* Message passing, with plain bytes as the message. */
    pause_for(round, thread, 29);
    if (thread == 0) {
        memset(r->payload, 7, sizeof r->payload);
        set(&r->flag, 1, memory_order_release);
    } else if (get(&r->flag, memory_order_acquire)) {
        int sum = 0;
        for (size_t at = 0; at < sizeof r->payload; at += 11)
            sum += r->payload[at];
        seen[0] = sum == 7 * 19 ? 1 : -1;
    }
    /* Store buffering: with fences, without, and sequentially consistent. */
    pthread_barrier_wait(&barrier);
    if (thread < 2) {
        bring(&r->x, &r->y);
        meet(&r->gates[0], 2);
        pause_for(round, thread, 300);
        set(thread ? &r->y : &r->x, 1, memory_order_relaxed);
        atomic_thread_fence(memory_order_seq_cst);
        seen[1] = get(thread ? &r->x : &r->y, memory_order_relaxed);
        bring(&r->sx, &r->sy);
        meet(&r->gates[1], 2);
        pause_for(round, thread, 300);
        set(thread ? &r->sy : &r->sx, 1, memory_order_seq_cst);
        seen[2] = get(thread ? &r->sx : &r->sy, memory_order_seq_cst);
        bring(&r->wx, &r->wy);
        meet(&r->gates[2], 2);
        pause_for(round, thread, 300);
        set(thread ? &r->wy : &r->wx, 1, memory_order_relaxed);
        seen[3] = get(thread ? &r->wx : &r->wy, memory_order_relaxed);
    }
    /* Load buffering. */
    pthread_barrier_wait(&barrier);
    pause_for(round, thread, 29);
    if (thread < 2) {
        seen[4] = get(thread ? &r->ly : &r->lx, memory_order_relaxed);
        set(thread ? &r->lx : &r->ly, 1, memory_order_relaxed);
    }
    /* Independent reads of independent writes: x and y are 1 by now, and become 2. */
    meet(&r->gates[3], THREADS);
    pause_for(round, thread, 29);
    if (thread < 2) {
        set(thread ? &r->y : &r->x, 2, memory_order_seq_cst);
    } else {
        seen[5] = get(thread == 2 ? &r->x : &r->y, memory_order_seq_cst);
        seen[6] = get(thread == 2 ? &r->y : &r->x, memory_order_seq_cst);
    }
    /* Coherence: one word never goes back. */
    pthread_barrier_wait(&barrier);
    if (thread == 0)
        for (int value = 1; value <= 20; value++)
            set(&r->one, value, memory_order_relaxed);
    else
        for (int last = 0, look = 0; look < 20; look++) {
            int now = get(&r->one, memory_order_relaxed);
            if (now < last)
                seen[7]++;
            last = now;
        }
    pthread_barrier_wait(&barrier);
}

static void *work(void *argument) {
    for (int round = 0; round < ROUNDS; round++)
        one_round(&rounds[round], round, (int)(long)argument);
    return 0;
}

int main(void) {
    pthread_t ids[THREADS];
    int message = 0, passed = 0, fenced = 0, ordered = 0, weak = 0, loads = 0, writes = 0, back = 0;
    pthread_barrier_init(&barrier, 0, THREADS);
    for (long number = 0; number < THREADS; number++)
        pthread_create(&ids[number], 0, work, (void *)number);
    for (int number = 0; number < THREADS; number++)
        pthread_join(ids[number], 0);
    for (int round = 0; round < ROUNDS; round++) {
        struct round *r = &rounds[round];
        for (int thread = 0; thread < THREADS; thread++) {
            message += r->seen[thread][0] < 0;
            passed += r->seen[thread][0] > 0;
            back += r->seen[thread][7];
        }
        fenced += !r->seen[0][1] && !r->seen[1][1];
        ordered += !r->seen[0][2] && !r->seen[1][2];
        weak += !r->seen[0][3] && !r->seen[1][3];
        loads += r->seen[0][4] && r->seen[1][4];
        writes += r->seen[2][5] == 2 && r->seen[2][6] == 1 && r->seen[3][5] == 2 && r->seen[3][6] == 1;
    }
    printf("impossible: message %d, fenced %d, ordered %d, loads %d, writes %d, back %d\n", message, fenced, ordered,
           loads, writes, back);
    printf("possible: passed %d, weak %d\n", passed, weak);
    return 0;
}
