// Clocks and the time-stamp counter agree; a loop that polls a clock, and a long one without any access, end; a thread
// has the stack that it asks for.
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <x86intrin.h>

enum { MILLISECOND = 1000000, STACK = 16 << 20 };

static long long nanoseconds(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void *on_stack(void *argument) {
    char large[STACK / 2];
    memset(large, 1, sizeof large);
    *(int *)argument = large[STACK / 4] == 1;
    return 0;
}

int main(void) {
    // What a cycle takes is told by a sleep, and has to be the same in a loop. The scheduler may take some time of it.
    long long from = nanoseconds(CLOCK_MONOTONIC);
    unsigned long long cycles = __rdtsc();
    nanosleep(&(struct timespec){.tv_nsec = 2 * MILLISECOND}, 0);
    double per_cycle = (double)(nanoseconds(CLOCK_MONOTONIC) - from) / (double)(__rdtsc() - cycles);
    from = nanoseconds(CLOCK_REALTIME);
    cycles = __rdtsc();
    while (nanoseconds(CLOCK_REALTIME) - from < MILLISECOND)
        ;
    double passed = (double)(__rdtsc() - cycles) * per_cycle;
    int agree = passed > 0.99 * MILLISECOND && passed < 1.05 * MILLISECOND;
    from = nanoseconds(CLOCK_MONOTONIC);
    cycles = __rdtsc();
    while ((double)(__rdtsc() - cycles) * per_cycle < MILLISECOND)
        ;
    double polled_for = (double)(nanoseconds(CLOCK_MONOTONIC) - from);
    int polled = polled_for > 0.99 * MILLISECOND && polled_for < 1.05 * MILLISECOND;
    from = nanoseconds(CLOCK_MONOTONIC);
    for (long turn = 0; turn < 1000000; turn++)
        __asm__ volatile("" : "+r"(turn));
    int counted = nanoseconds(CLOCK_MONOTONIC) - from > 50000;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK);
    pthread_t thread;
    int stack = 0;
    pthread_create(&thread, &attributes, on_stack, &stack);
    pthread_join(thread, 0);
    printf("clocks agree %d, polled %d, counted %d, stack %d\n", agree, polled, counted, stack);
}
