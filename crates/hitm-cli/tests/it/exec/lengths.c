/* How long each call takes that is given 100 ms, or a time of day in 100 ms. */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static struct timespec start;

/* Milliseconds since the start, rounded. */
static long passed(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    long micros = (now.tv_sec - start.tv_sec) * 1000000 + (now.tv_nsec - start.tv_nsec) / 1000;
    return (micros + 500) / 1000;
}

static struct timespec in_100_ms(int clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    time.tv_nsec += 100000000;
    if (time.tv_nsec >= 1000000000) {
        time.tv_nsec -= 1000000000;
        time.tv_sec++;
    }
    return time;
}

static void caught(int signal) {
    (void)signal;
}

#define TELL(what, call)                          \
    do {                                          \
        clock_gettime(CLOCK_MONOTONIC, &start);   \
        call;                                     \
        printf("%s%s %ld", comma, what, passed()); \
        comma = ", ";                             \
    } while (0)

int main(void) {
    const char *comma = "";
    const struct timespec length = {0, 100000000};
    struct timeval micros = {0, 100000};
    const struct itimerval once = {.it_value = {0, 100000}};
    struct itimerval left;
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
    sem_t semaphore;
    sigset_t set;
    int word = 0;
    sem_init(&semaphore, 0, 0);
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, 0);
    signal(SIGALRM, caught);
    struct timespec time = in_100_ms(CLOCK_REALTIME);
    TELL("nanosleep", nanosleep(&length, 0));
    TELL("poll", poll(0, 0, 100));
    TELL("select", select(0, 0, 0, 0, &micros));
    TELL("sigtimedwait", sigtimedwait(&set, 0, &length));
    TELL("futex", syscall(SYS_futex, &word, FUTEX_WAIT, 0, &length, 0, 0));
    time = in_100_ms(CLOCK_REALTIME);
    pthread_mutex_lock(&mutex);
    TELL("condition", pthread_cond_timedwait(&condition, &mutex, &time));
    pthread_mutex_unlock(&mutex);
    time = in_100_ms(CLOCK_REALTIME);
    TELL("semaphore", sem_timedwait(&semaphore, &time));
    setitimer(ITIMER_REAL, &once, 0);
    getitimer(ITIMER_REAL, &left);
    TELL("timer", pause());
    alarm(1);
    TELL("alarm", pause());
    time = in_100_ms(CLOCK_MONOTONIC);
    TELL("until", clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, 0));
    printf(", left %d\n", left.it_value.tv_usec > 80000 && left.it_value.tv_usec <= 100000);
    return 0;
}
