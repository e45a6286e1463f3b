// One thread, private data: a loop over 32 KiB with two loads and a store per turn. Prints the time
// per turn, which natively is the processor's.
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#if __has_include(<hitm.h>)
#include <hitm.h>
#else
static void hitm_begin(void) {}
static void hitm_end(void) {}
#endif

enum { WORDS = 4096 };

static long data[WORDS];

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

int main(int count, char **words) {
    long turns = count > 1 ? atol(words[1]) : 1000000;
    long sum = 0;
    for (long i = 0; i < WORDS; i++)
        data[i] = i;
    hitm_begin();
    double begin = now();
    for (long turn = 0; turn < turns; turn++) {
        long i = turn % WORDS;
        data[i] += turn;
        sum += data[7 * i % WORDS];
    }
    hitm_end();
    printf("%.3f ns per turn, sum %ld\n", (now() - begin) / turns, sum);
}
