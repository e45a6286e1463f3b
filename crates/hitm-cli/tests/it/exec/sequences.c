/* Restartable sequences, concurrency ids, and fences of other CPUs. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SIGNATURE 0x53053053
#define THREADS 4
#define ROUNDS 2000
#define TURNS 100
enum { QUERY = 0, PRIVATE = 8, REGISTER = 16, RESTART = 128, REGISTER_RESTART = 256 };

struct area {
    uint32_t cpu_id_start, cpu_id;
    uint64_t sequence;
    uint32_t flags, node_id, mm_cid, rest;
} __attribute__((aligned(32)));

/* The C library's, if it has registered one. */
extern const ptrdiff_t __rseq_offset __attribute__((weak));
extern const unsigned __rseq_size __attribute__((weak));
static __thread struct area own;

static volatile struct area *area_of_thread(void) {
    if (&__rseq_size && __rseq_size)
        return (void *)((char *)__builtin_thread_pointer() + __rseq_offset);
    return &own;
}

static void begin(void) {
    if (area_of_thread() == &own && syscall(SYS_rseq, &own, sizeof own, 0, SIGNATURE))
        exit(77);
}

static struct {
    long count;
    char rest[120];
} counters[4096];
static long aborted;
static volatile int ready, over, wrong;

/* Adds 1 to the counter of the CPU; 0 if it was interrupted. */
static int add(volatile struct area *area) {
    uint32_t cpu = area->cpu_id_start;
    __asm__ goto(".pushsection __rseq_cs, \"aw\"\n"
                 ".balign 32\n"
                 "3: .long 0, 0\n"
                 ".quad 1f, 2f - 1f, 4f\n"
                 ".popsection\n"
                 "leaq 3b(%%rip), %%rax\n"
                 "movq %%rax, %[sequence]\n"
                 "1:\n"
                 "cmpl %[cpu], %[now]\n"
                 "jnz 4f\n"
                 "movq %[count], %%rax\n"
                 "incq %%rax\n"
                 "movq %%rax, %[count]\n"
                 "2:\n"
                 ".pushsection __rseq_failure, \"ax\"\n"
                 ".byte 0x0f, 0xb9, 0x3d\n"
                 ".long 0x53053053\n"
                 "4: jmp %l[interrupted]\n"
                 ".popsection\n"
                 :
                 : [sequence] "m"(area->sequence), [now] "m"(area->cpu_id), [cpu] "r"(cpu),
                   [count] "m"(counters[cpu].count)
                 : "memory", "cc", "rax"
                 : interrupted);
    return 1;
interrupted:
    return 0;
}

static void *work(void *unused) {
    begin();
    volatile struct area *area = area_of_thread();
    long interrupted = 0;
    __atomic_fetch_add(&ready, 1, __ATOMIC_SEQ_CST);
    while (ready < THREADS)
        ;
    for (int round = 0; round < ROUNDS; round++)
        while (!add(area))
            interrupted++;
    __atomic_fetch_add(&aborted, interrupted, __ATOMIC_SEQ_CST);
    return unused;
}

static void *restart_all(void *unused) {
    while (ready < THREADS)
        ;
    while (!over)
        if (syscall(SYS_membarrier, RESTART, 0, 0))
            wrong = 1;
    return unused;
}

/* On which CPU it is, and its id. */
static void *place(void *ids) {
    begin();
    cpu_set_t set;
    int cpu = sched_getcpu();
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    sched_setaffinity(0, sizeof set, &set);
    unsigned told, node;
    volatile struct area *area = area_of_thread();
    if (syscall(SYS_getcpu, &told, &node, 0) || told != area->cpu_id || told != area->cpu_id_start)
        wrong = 1;
    __atomic_fetch_add(&ready, 1, __ATOMIC_SEQ_CST);
    while (ready < THREADS)
        ;
    __atomic_fetch_or((long *)ids, 1L << (area->mm_cid & 63), __ATOMIC_SEQ_CST);
    __atomic_fetch_add(&ready, 1, __ATOMIC_SEQ_CST);
    while (ready < 2 * THREADS)
        ;
    return 0;
}

/* Two threads each store to a word and load the other's. One has no fence: the other makes it. */
static struct {
    volatile int word;
    char rest[124];
} left, right, turn_left, turn_right;
static volatile int seen_left, seen_right;

static void *without_fence(void *unused) {
    for (int turn = 1; turn <= TURNS; turn++) {
        /* It has a copy of the line when it loads the word. */
        while (turn_left.word < turn)
            (void)right.word;
        left.word = 1;
        seen_right = right.word;
        turn_right.word = turn;
    }
    return unused;
}

static int both_missed(int command) {
    pthread_t other;
    int missed = 0;
    turn_left.word = turn_right.word = 0;
    pthread_create(&other, 0, without_fence, 0);
    for (int turn = 1; turn <= TURNS; turn++) {
        left.word = right.word = 0;
        usleep(1);
        turn_left.word = turn;
        /* So long that both store at about the same time, in some turn. */
        for (volatile int wait = 0; wait < 4 * turn; wait++)
            ;
        right.word = 1;
        if (command)
            syscall(SYS_membarrier, command, 0, 0);
        seen_left = left.word;
        while (turn_right.word < turn)
            ;
        missed += !seen_left && !seen_right;
    }
    pthread_join(other, 0);
    return missed;
}

static void all(void *(*code)(void *), void *argument) {
    pthread_t threads[THREADS];
    ready = 0;
    for (int number = 0; number < THREADS; number++)
        pthread_create(&threads[number], 0, code, argument);
    for (int number = 0; number < THREADS; number++)
        pthread_join(threads[number], 0);
}

int main(void) {
    begin();
    if (syscall(SYS_membarrier, QUERY, 0, 0) < 0 || syscall(SYS_membarrier, REGISTER, 0, 0)
        || syscall(SYS_membarrier, REGISTER_RESTART, 0, 0))
        exit(77);
    pthread_t restarts;
    pthread_create(&restarts, 0, restart_all, 0);
    all(work, 0);
    over = 1;
    pthread_join(restarts, 0);
    long sum = 0;
    for (int cpu = 0; cpu < 4096; cpu++)
        sum += counters[cpu].count;
    long ids = 0;
    all(place, &ids);
    printf("sum %ld, wrong %d, missed %d\n", sum, wrong, both_missed(PRIVATE));
    printf("aborted %d, missed without %d, ids %#lx of %lu bytes\n", aborted > 0, both_missed(0) > 0, ids,
           getauxval(27));
}
