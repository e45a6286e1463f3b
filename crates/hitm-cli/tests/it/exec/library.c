/* A shared library, and with -DMAIN a program that loads it or is linked with it. */
#ifndef MAIN
static long hits[8];
static __thread struct {
    long padding[8], calls;
} own;
static long *calls;

// The calling thread's variable is the one that all count in.
void begin(void) {
    calls = &own.calls;
}

void hit(int number) {
    for (int round = 0; round < 1000; round++) {
        __atomic_fetch_add(&hits[number], 1, __ATOMIC_RELAXED);
        __atomic_fetch_add(calls, 1, __ATOMIC_RELAXED);
    }
}

long total(void) {
    long sum = 0;
    for (int number = 0; number < 8; number++)
        sum += hits[number];
    return sum;
}
#else
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef LINKED
void begin(void);
void hit(int number);
long total(void);
#else
static void (*begin)(void);
static void (*hit)(int);
static long (*total)(void);
#endif

static void *work(void *number) {
    hit((int)(long)number);
    return 0;
}

int main(int count, char **words) {
    pthread_t ids[8];
#ifndef LINKED
    void *library = dlopen(words[count - 1], RTLD_NOW);
    if (!library)
        exit(1);
    *(void **)&begin = dlsym(library, "begin");
    *(void **)&hit = dlsym(library, "hit");
    *(void **)&total = dlsym(library, "total");
#endif
    begin();
    for (long number = 0; number < 8; number++)
        pthread_create(&ids[number], 0, work, (void *)number);
    for (int number = 0; number < 8; number++)
        pthread_join(ids[number], 0);
    printf("total %ld\n", total());
    return 0;
}
#endif
