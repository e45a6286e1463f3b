/* Cleanup handlers of C run when a thread ends in the middle of its code, the last one first. */
#include <pthread.h>
#include <stdio.h>
#include <threads.h>

static void say(void *what) { puts(what); }

__attribute__((noinline)) static void inner(int is_of_c11) {
    pthread_cleanup_push(say, "popped");
    pthread_cleanup_pop(0);
    pthread_cleanup_push(say, "inner, second");
    if (is_of_c11)
        thrd_exit(3);
    pthread_exit((void *)2);
    pthread_cleanup_pop(0);
}

static void *ends(void *argument) {
    pthread_cleanup_push(say, "outer");
    inner(0);
    pthread_cleanup_pop(0);
    return argument;
}

static int ends_as_c11(void *argument) {
    pthread_cleanup_push(say, argument);
    inner(1);
    pthread_cleanup_pop(0);
    return 0;
}

int main(void) {
    pthread_t thread;
    void *value;
    pthread_create(&thread, NULL, ends, NULL);
    pthread_join(thread, &value);
    printf("value %ld\n", (long)value);
    thrd_t of_c11;
    int result;
    thrd_create(&of_c11, ends_as_c11, "outer of C11");
    thrd_join(of_c11, &result);
    printf("result %d\n", result);
    return 0;
}
