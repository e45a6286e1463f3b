/* Signals: handlers at calls, waits that they interrupt, timers, and signals that are waited for. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t caught, last, told;
static pthread_t who;
static sem_t semaphore;

static void count(int signal) {
    caught++;
    last = signal;
    who = pthread_self();
}

static void tell(int signal, siginfo_t *information, void *unused) {
    (void)unused;
    caught++;
    last = signal;
    told = information->si_value.sival_int;
}

static void handle(int signal, int flags) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = count;
    action.sa_flags = flags;
    sigaction(signal, &action, 0);
}

/* Runs without a call of the system until the handler has run. */
static void *spin(void *unused) {
    sem_post(&semaphore);
    while (last != SIGUSR2)
        ;
    return unused;
}

static void *lock_there(void *mutex) {
    sem_post(&semaphore);
    pthread_mutex_lock(mutex);
    pthread_mutex_unlock(mutex);
    return 0;
}

static void *take_all(void *sum) {
    sigset_t set;
    int signal;
    sigfillset(&set);
    for (int round = 0; round < 3; round++) {
        sigwait(&set, &signal);
        *(int *)sum += signal;
    }
    return 0;
}

static void pause_for(long nanos) {
    struct timespec length = {0, nanos};
    while (nanosleep(&length, &length) && errno == EINTR)
        ;
}

static void threads(void) {
    pthread_t id;
    sem_init(&semaphore, 0, 0);
    handle(SIGUSR1, 0);
    handle(SIGUSR2, SA_RESTART);
    raise(SIGUSR1);
    int by_raise = caught == 1 && who == pthread_self();
    kill(getpid(), SIGUSR1);
    int by_kill = caught == 2;
    sigset_t one, pending;
    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &one, 0);
    raise(SIGUSR1);
    raise(SIGUSR1);
    sigpending(&pending);
    int blocked = caught == 2 && sigismember(&pending, SIGUSR1) && !sigismember(&pending, SIGUSR2);
    pthread_sigmask(SIG_UNBLOCK, &one, 0);
    int once = caught == 3;
    pthread_create(&id, 0, spin, 0);
    sem_wait(&semaphore);
    pause_for(2000000);
    pthread_kill(id, SIGUSR2);
    pthread_join(id, 0);
    int in_loop = caught == 4 && who == id;
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&mutex);
    pthread_create(&id, 0, lock_there, &mutex);
    sem_wait(&semaphore);
    pause_for(2000000);
    pthread_kill(id, SIGUSR1);
    /* Natively the thread may wait for a CPU of a busy host. */
    for (int turn = 0; caught == 4 && turn < 1000; turn++)
        pause_for(2000000);
    int in_lock = caught == 5;
    pthread_mutex_unlock(&mutex);
    pthread_join(id, 0);
    printf("raise %d, kill %d, blocked %d, once %d, in a loop %d, in a lock %d\n", by_raise, by_kill, blocked, once,
           in_loop, in_lock);
}

static void interrupted(void) {
    struct timespec length = {1, 0}, left = {0, 0};
    struct itimerval soon = {{0, 5000}, {0, 5000}}, left_of;
    handle(SIGALRM, 0);
    caught = 0;
    setitimer(ITIMER_REAL, &soon, 0);
    int slept = nanosleep(&length, &left);
    int sleep_error = errno;
    setitimer(ITIMER_REAL, &soon, 0);
    sem_init(&semaphore, 0, 0);
    int semaphore_error = sem_wait(&semaphore) ? errno : 0;
    setitimer(ITIMER_REAL, &soon, 0);
    int poll_error = poll(0, 0, -1) ? errno : 0;
    setitimer(ITIMER_REAL, &soon, 0);
    pause();
    alarm(0);
    alarm(100);
    getitimer(ITIMER_REAL, &left_of);
    int alarm_left = alarm(0);
    printf("sleep %d %d %d, semaphore %d, poll %d, caught %d, alarm %d %d\n", slept, sleep_error == EINTR,
           left.tv_sec == 0 && left.tv_nsec > 900000000, semaphore_error == EINTR, poll_error == EINTR, caught >= 4,
           alarm_left, left_of.it_value.tv_sec >= 99);
}

static void timers(void) {
    struct sigaction action;
    struct sigevent event;
    struct itimerspec times = {{0, 2000000}, {0, 2000000}};
    timer_t timer, silent;
    sigset_t none, rest, old;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = tell;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGRTMIN, &action, 0);
    memset(&event, 0, sizeof event);
    event.sigev_notify = SIGEV_THREAD_ID;
    event._sigev_un._tid = (pid_t)syscall(SYS_gettid);
    event.sigev_signo = SIGRTMIN;
    event.sigev_value.sival_int = 77;
    timer_create(CLOCK_MONOTONIC, &event, &timer);
    caught = 0;
    sigemptyset(&rest);
    sigaddset(&rest, SIGRTMIN);
    sigprocmask(SIG_BLOCK, &rest, &old);
    sigemptyset(&none);
    timer_settime(timer, 0, &times, 0);
    for (int round = 0; round < 5; round++)
        sigsuspend(&none);
    timer_delete(timer);
    int by_timer = caught == 5 && told == 77 && last == SIGRTMIN;
    event.sigev_notify = SIGEV_NONE;
    timer_create(CLOCK_REALTIME, &event, &silent);
    times.it_interval.tv_nsec = 0;
    times.it_value.tv_sec = 50;
    timer_settime(silent, 0, &times, 0);
    timer_gettime(silent, &times);
    siginfo_t information;
    union sigval value = {.sival_int = 5};
    struct timespec short_time = {0, 1000000}, no_time = {0, 0};
    while (sigtimedwait(&rest, &information, &no_time) == SIGRTMIN)
        ;
    sigqueue(getpid(), SIGRTMIN, value);
    sigqueue(getpid(), SIGRTMIN, value);
    int first = sigwaitinfo(&rest, &information) == SIGRTMIN && information.si_value.sival_int == 5 &&
                information.si_code == SI_QUEUE;
    int second = sigtimedwait(&rest, &information, &short_time) == SIGRTMIN;
    int third = sigtimedwait(&rest, &information, &short_time) == -1 && errno == EAGAIN;
    printf("timer %d, left %d, awaited %d %d %d\n", by_timer, times.it_value.tv_sec == 49 || times.it_value.tv_sec == 50,
           first, second, third);
}

static void waited(void) {
    pthread_t id;
    sigset_t all;
    int sum = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, 0);
    pthread_create(&id, 0, take_all, &sum);
    kill(getpid(), SIGTERM);
    pause_for(5000000);
    pthread_kill(id, SIGINT);
    pause_for(5000000);
    kill(getpid(), SIGUSR1);
    pthread_join(id, 0);
    printf("waited for %d\n", sum == SIGTERM + SIGINT + SIGUSR1);
}

int main(int count, char **words) {
    threads();
    interrupted();
    timers();
    waited();
    fflush(stdout);
    if (count > 1 && !strcmp(words[1], "end")) {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_UNBLOCK, &all, 0);
        signal(SIGTERM, SIG_DFL);
        kill(getpid(), SIGTERM);
    }
    return 0;
}
