/*
 * Runs kernel/sched/cpupri.c of Linux on the simulated machine: docs/results/programs.md.
 *
 *     S=linux-source-6.1/kernel/sched; hitm cc -O2 -I$S linux_cpupri.c -o cpupri
 *     hitm exec ./cpupri OPERATION ROUNDS
 *
 * What stands below in place of the kernel's headers is our own.
 */
#include <hitm.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CPUS 480
#define BITS 64
#define WORDS ((CPUS + BITS - 1) / BITS)
#define MAX_RT_PRIO 100
#define CONFIG_SMP 1
#define GFP_KERNEL 0
#define ENOMEM 12
#define likely(x) (x)
#define WARN_ON_ONCE(x) ((void)(x))
#define BUG_ON(x) ((void)(x))

typedef struct {
    int counter;
} atomic_t;
#define atomic_read(word) __atomic_load_n(&(word)->counter, __ATOMIC_RELAXED)
#define atomic_set(word, value) __atomic_store_n(&(word)->counter, value, __ATOMIC_RELAXED)
#define atomic_inc(word) ((void)__atomic_fetch_add(&(word)->counter, 1, __ATOMIC_RELAXED))
#define atomic_dec(word) ((void)__atomic_fetch_sub(&(word)->counter, 1, __ATOMIC_RELAXED))
/* On x86 these order the compiler alone. */
#define smp_rmb() __asm__ volatile("" ::: "memory")
#define smp_mb__before_atomic() __asm__ volatile("" ::: "memory")
#define smp_mb__after_atomic() __asm__ volatile("" ::: "memory")

struct cpumask {
    unsigned long bits[WORDS];
};
typedef struct cpumask *cpumask_var_t;
static struct cpumask active;
#define cpu_active_mask (&active)
static const unsigned nr_cpu_ids = CPUS;

static inline void cpumask_set_cpu(unsigned cpu, struct cpumask *mask) {
    __atomic_fetch_or(&mask->bits[cpu / BITS], 1ul << cpu % BITS, __ATOMIC_RELAXED);
}
static inline void cpumask_clear_cpu(unsigned cpu, struct cpumask *mask) {
    __atomic_fetch_and(&mask->bits[cpu / BITS], ~(1ul << cpu % BITS), __ATOMIC_RELAXED);
}
static inline unsigned cpumask_any_and(const struct cpumask *one, const struct cpumask *other) {
    for (unsigned word = 0; word < WORDS; word++)
        if (one->bits[word] & other->bits[word])
            return word * BITS + __builtin_ctzl(one->bits[word] & other->bits[word]);
    return nr_cpu_ids;
}
static inline bool cpumask_and(struct cpumask *to, const struct cpumask *one, const struct cpumask *other) {
    unsigned long any = 0;
    for (unsigned word = 0; word < WORDS; word++)
        any |= to->bits[word] = one->bits[word] & other->bits[word];
    return any;
}
static inline bool cpumask_empty(const struct cpumask *mask) {
    for (unsigned word = 0; word < WORDS; word++)
        if (mask->bits[word])
            return false;
    return true;
}
#define for_each_cpu(cpu, mask) \
    for ((cpu) = 0; (cpu) < CPUS; (cpu)++) \
        if ((mask)->bits[(cpu) / BITS] >> (cpu) % BITS & 1)
#define for_each_possible_cpu(cpu) for ((cpu) = 0; (cpu) < CPUS; (cpu)++)
static bool zalloc_cpumask_var(cpumask_var_t *mask, int flags) {
    (void)flags;
    *mask = aligned_alloc(64, 64);
    return *mask && memset(*mask, 0, 64);
}
#define free_cpumask_var(mask) free(mask)
#define kcalloc(count, size, flags) calloc(count, size)
#define kfree(block) free(block)

struct task_struct {
    int prio;
    struct cpumask cpus_mask;
};

#include "cpupri.h"
#include "cpupri.c"

/* Priorities as the kernel counts them: 99 is a CPU without a task of real time. */
#define NORMAL 99

static struct cpupri cpupri;
static struct task_struct task = {.prio = 49}; /* SCHED_FIFO 50: it searches levels 0 to 49. */

/* All CPUs from `first` to `last` get a priority; the task may run on the first 64 alone. */
static void set_all(int first, int last, int prio) {
    for (int cpu = first; cpu < last; cpu++)
        cpupri_set(&cpupri, cpu, prio);
}

int main(int count, char **words) {
    const char *operation = count > 1 ? words[1] : "";
    long rounds = count > 2 ? atol(words[2]) : 1000, found = 0;
    struct cpumask lowest;
    cpupri_init(&cpupri);
    memset(&active, 0xff, sizeof active);
    task.cpus_mask.bits[0] = ~0ul;
    /* No level below the task's has a CPU. */
    set_all(0, CPUS, 9);
    if (!strcmp(operation, "find-one"))
        set_all(0, 1, NORMAL);
    if (!strcmp(operation, "find-many")) /* Ten levels have CPUs that are not allowed. */
        for (int level = 0; level < 10; level++)
            set_all(64 + level, 65 + level, 98 - level);
    hitm_begin();
    for (long round = 0; round < rounds; round++)
        if (!strncmp(operation, "find", 4))
            found += cpupri_find(&cpupri, &task, &lowest);
        else if (!strcmp(operation, "set"))
            cpupri_set(&cpupri, 100, round % 2 ? 9 : NORMAL);
        else if (!strcmp(operation, "set-same"))
            cpupri_set(&cpupri, 100, 9);
        else
            return 2;
    hitm_end();
    printf("%s: %ld rounds, %ld found\n", operation, rounds, found);
    return 0;
}
