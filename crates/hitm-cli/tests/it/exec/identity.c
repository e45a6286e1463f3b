/* What a program asks the system for: the same in every run with a seed. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <time.h>
#include <unistd.h>

static void *thread_id(void *place) {
    *(pid_t *)place = gettid();
    return 0;
}

static void print(const char *name, const unsigned char *bytes, int count) {
    printf("%s ", name);
    for (int index = 0; index < count; index++)
        printf("%02x", bytes[index]);
    printf("\n");
}

int main(void) {
    unsigned char bytes[8];
    pid_t ids[4] = {0};
    for (int number = 0; number < 4; number++) {
        pthread_t id;
        pthread_create(&id, 0, thread_id, &ids[number]);
        pthread_join(id, 0);
    }
    int right = getpid() == gettid() && syscall(SYS_gettid) == gettid() && ids[0] != getpid();
    printf("ids %s\n", right ? "right" : "wrong");
    printf("process %d, parent %d, threads %d %d %d %d\n", getpid(), getppid(), ids[0], ids[1], ids[2], ids[3]);
    printf("time %ld\n", (long)time(0));
    int file = open("/dev/urandom", O_RDONLY);
    memset(bytes, 0, sizeof bytes);
    printf("read %zd\n", read(file, bytes, sizeof bytes));
    close(file);
    print("urandom", bytes, 8);
    FILE *stream = fopen("/dev/urandom", "r");
    printf("stream %zu\n", fread(bytes, 1, sizeof bytes, stream));
    fclose(stream);
    print("stream", bytes, 8);
    char possible[64] = "", online[64] = "";
    file = open("/sys/devices/system/cpu/possible", O_RDONLY);
    possible[read(file, possible, 63) - 1] = 0;
    close(file);
    stream = fopen("/sys/devices/system/cpu/online", "r");
    fscanf(stream, "%63s", online);
    fclose(stream);
    printf("cpus %s %s %d %ld\n", possible, online, get_nprocs_conf(), sysconf(_SC_NPROCESSORS_ONLN));
    shm_unlink("/hitm-identity");
    file = shm_open("/hitm-identity", O_RDWR | O_CREAT | O_EXCL, 0600);
    int *word = ftruncate(file, 4096) ? 0 : mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    *word = 8;
    lseek(file, 0, SEEK_SET);
    int again = shm_open("/hitm-identity", O_RDWR | O_CREAT | O_EXCL, 0600);
    int count = read(file, bytes, 8);
    printf("shared %d %d %d %d\n", count, bytes[0], again, shm_unlink("/hitm-identity"));
    print("auxiliary", (unsigned char *)getauxval(AT_RANDOM), 16);
    /* Processor time is that of the simulated CPUs. */
    struct timespec from, until, wall, wall_until;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
    clock_gettime(CLOCK_MONOTONIC, &wall);
    for (volatile int round = 0; round < 10000; round++)
        ;
    usleep(1000);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &until);
    clock_gettime(CLOCK_MONOTONIC, &wall_until);
    long ran = (until.tv_sec - from.tv_sec) * 1000000000 + until.tv_nsec - from.tv_nsec;
    long passed = (wall_until.tv_sec - wall.tv_sec) * 1000000000 + wall_until.tv_nsec - wall.tv_nsec;
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    printf("processor time %s\n", ran > 0 && passed - ran >= 900000 ? "right" : "wrong");
    printf("times %ld %ld %ld %ld\n", ran, passed, clock(), usage.ru_utime.tv_usec);
    return 0;
}
