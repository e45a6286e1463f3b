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

enum { WORDS = 2048 };

static long sum[WORDS], part[WORDS];

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

int main(int count, char **words) {
    long rounds = count > 1 ? atol(words[1]) : 1000;
    for (int i = 0; i < WORDS; i++)
        part[i] = i;
    hitm_begin();
    double begin = now();
    for (long round = 0; round < rounds; round++)
        for (int i = 0; i < WORDS; i++)
            sum[i] += part[i];
    hitm_end();
    printf("%.3f ns per turn, last %ld\n", (now() - begin) / rounds / WORDS, sum[WORDS - 1]);
}
