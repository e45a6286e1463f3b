/* Accesses of every width, aligned and not, atomic and not: right values, natively and simulated. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef unsigned __int128 wide;

struct pair {
    uint64_t low, high;
};

static _Alignas(64) struct {
    wide counter, locked;
    char text[200];
    struct pair pairs[40];
    volatile wide watched;
} shared;

/* Words that cross lines. */
static _Alignas(64) char bytes[4096];

static void *work(void *argument) {
    long number = (long)argument;
    for (int round = 0; round < 50; round++) {
        __atomic_fetch_add(&shared.counter, (wide)1 << 64 | 1, __ATOMIC_RELAXED);
        wide seen = __atomic_load_n(&shared.locked, __ATOMIC_ACQUIRE);
        while (!__atomic_compare_exchange_n(&shared.locked, &seen, seen + ((wide)3 << 64), 0, __ATOMIC_ACQ_REL,
                                            __ATOMIC_ACQUIRE))
            ;
        /* A word of 8 bytes at 60, of 4 at 62 and so on: each thread has its own line and the next. */
        char *own = bytes + 256 * number;
        for (int at = 57; at < 64; at++) {
            uint64_t word;
            memcpy(&word, own + at, sizeof word);
            word += 1;
            memcpy(own + at, &word, sizeof word);
            *(uint32_t *)(own + at + 70) += 1;
            *(volatile uint16_t *)(own + at + 1) = (uint16_t)(round + at);
            __atomic_fetch_add((uint32_t *)(own + at + 3), 5, __ATOMIC_SEQ_CST);
        }
        memset(own + 130, round, 70);
        __atomic_store_n((uint32_t *)(own + 160), 7, __ATOMIC_RELAXED);
        memmove(own + 131, own + 130, 40);
        own[163] += memcmp(own + 130, own + 131, 40) == 0;
    }
    return 0;
}

int main(void) {
    pthread_t ids[4];
    for (long number = 0; number < 4; number++)
        pthread_create(&ids[number], 0, work, (void *)number);
    for (int number = 0; number < 4; number++)
        pthread_join(ids[number], 0);
    uint64_t sum = 0;
    for (size_t at = 0; at < sizeof bytes; at++)
        sum = sum * 31 + (unsigned char)bytes[at];
    struct pair copy = {1, 2};
    for (int number = 0; number < 40; number++) {
        shared.pairs[number] = copy;
        copy.low += copy.high;
    }
    shared.watched = (wide)copy.low << 64 | 9;
    wide before = __atomic_exchange_n(&shared.counter, 0, __ATOMIC_SEQ_CST);
    __atomic_store_n(&shared.counter, 5, __ATOMIC_RELEASE);
    wide kept = __atomic_fetch_nand(&shared.counter, 4, __ATOMIC_RELAXED);
    kept = kept * 1000 + __atomic_fetch_sub(&shared.counter, 1, __ATOMIC_RELAXED) % 1000;
    strcpy(shared.text, "of the");
    strcat(shared.text, " library");
    strncpy(shared.text + 60, "across the line", 20);
    printf("%llu %llu, %llu, %016llx, %llu %llu, %llu, %zu %d %s %s\n", (unsigned long long)before,
           (unsigned long long)(before >> 64), (unsigned long long)(shared.locked >> 64), (unsigned long long)sum,
           (unsigned long long)shared.pairs[39].low, (unsigned long long)(shared.watched >> 64),
           (unsigned long long)kept, strlen(shared.text), strcmp(shared.text, "of these") < 0,
           strchr(shared.text, 'l'), shared.text + 60);
    return 0;
}
