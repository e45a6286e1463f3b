// Inline assembly in the forms that programs have: prefixes on lines of their own, symbols, the
// stack, thread-local storage, strings, wide and double words, locks, fences.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 8, ROUNDS = 100 };

static int apart, line;
int top;
static long added, compared, in_register;
static unsigned bits;
static __int128 pair;
static struct { int taken; long held; } exchanged;
static struct { unsigned next, serving; long held; } ticket;
static int flags[2], saw_nothing;
static __thread int own __attribute__((tls_model("initial-exec")));
static pthread_barrier_t start;

// A function of its own, with a local symbol as the operand.
void add_to_top(void);
__asm__(".text\n.type add_to_top, @function\nadd_to_top:\n\tlock incl top(%rip)\n\tret\n");

static long add(long *word, long value) {
    __asm__ volatile("lock; xaddq %0, %1" : "+r"(value), "+m"(*word) : : "memory", "cc");
    return value;
}

static int compare(long *word, long old, long new) {
    char is_same;
    __asm__ volatile("lock\n\tcmpxchgq %3, %1\n\tsete %0" : "=q"(is_same), "+m"(*word), "+a"(old) : "r"(new)
                     : "memory", "cc");
    return is_same;
}

static void add_pair(void) {
    char is_same;
    long low = 0, high = 0;
    do {
        __asm__ volatile("movq %%rax, %%rbx; addq $1, %%rbx; movq %%rdx, %%rcx; adcq $2, %%rcx; lock cmpxchg16b %1; sete %0"
                         : "=q"(is_same), "+m"(pair), "+a"(low), "+d"(high) : : "rbx", "rcx", "memory", "cc");
    } while (!is_same);
}

static void lock(void) {
    __asm__ volatile("1:\tmovl $1, %%eax\n\txchgl %%eax, %0\n\ttestl %%eax, %%eax\n\tjz 3f\n"
                     "2:\tpause\n\tcmpl $0, %0\n\tjne 2b\n\tjmp 1b\n3:" : "+m"(exchanged.taken) : : "eax", "memory", "cc");
}

static void unlock(void) {
    __asm__ volatile("movl $0, %0" : "=m"(exchanged.taken) : : "memory");
}

static unsigned load(unsigned *word) {
    unsigned value;
    __asm__ volatile("movl %1, %0" : "=r"(value) : "m"(*word) : "memory");
    return value;
}

// What is in registers and flags stays: sum, carry, and all of a vector.
static long kept(const long *word) {
    long sum, vector[2] = {3, 4}, after[2];
    __asm__ volatile("movups %2, %%xmm7\n\tmovl $5, %%r8d\n\tmovl $6, %%r11d\n\tstc\n\tmovq %3, %0\n\tadcq %%r8, %0\n\t"
                     "addq %%r11, %0\n\tmovups %%xmm7, %1"
                     : "=&r"(sum), "=m"(after) : "m"(vector), "m"(*word) : "r8", "r11", "xmm7", "cc");
    return sum + after[0] + after[1];
}

static void *work(void *argument) {
    long number = (long)argument;
    long local = 0;
    char from[100], to[100];
    pthread_barrier_wait(&start);
    for (int round = 0; round < ROUNDS; round++) {
        __asm__ volatile("lock; incl %0" : "+m"(apart) : : "memory", "cc");
        __asm__ volatile("lock\n\tincl %0" : "+m"(line) : : "memory", "cc");
        __asm__ volatile("lock incq (%0)" : : "r"(&in_register) : "memory", "cc");
        __asm__ volatile("lock; btsl $%c1, %0" : "+m"(bits) : "i"(3) : "memory", "cc");
        __asm__ volatile("incl %%fs:(%0)" : : "r"((char *)&own - (char *)__builtin_thread_pointer()) : "memory", "cc");
        __asm__ volatile("incq %0\n\tincq %0" : "+m"(local) : : "cc");
        add_to_top();
        add(&added, 2);
        while (!compare(&compared, compared, compared + 3))
            ;
        add_pair();
        lock();
        __asm__ volatile("incq %0" : "+m"(exchanged.held) : : "memory", "cc");
        unlock();
        unsigned turn = 1;
        __asm__ volatile("lock xaddl %0, %1" : "+r"(turn), "+m"(ticket.next) : : "memory", "cc");
        while (load(&ticket.serving) != turn)
            __asm__ volatile("rep; nop" : : : "memory");
        ticket.held++;
        __asm__ volatile("incl %0" : "+m"(ticket.serving) : : "memory", "cc");
    }
    if (local != 2 * ROUNDS || own != ROUNDS || kept(&local) != 2 * ROUNDS + 5 + 1 + 6 + 3 + 4)
        abort();
    void *target = from;
    unsigned long count = sizeof from;
    __asm__ volatile("rep stosb" : "+D"(target), "+c"(count) : "a"(number) : "memory");
    void *source = from;
    target = to;
    count = sizeof to / 4;
    __asm__ volatile("rep\n\tmovsl" : "+D"(target), "+S"(source), "+c"(count) : : "memory");
    for (unsigned byte = 0; byte < sizeof to; byte++)
        if (to[byte] != number)
            abort();
    return 0;
}

// With the fence, one of two threads sees what the other has stored.
static void *both(void *argument) {
    long number = (long)argument;
    int other;
    pthread_barrier_wait(&start);
    __asm__ volatile("movl $1, %0" : "=m"(flags[number]) : : "memory");
    __asm__ volatile("mfence" : : : "memory");
    __asm__ volatile("movl %1, %0" : "=r"(other) : "m"(flags[!number]) : "memory");
    if (!other)
        __atomic_fetch_add(&saw_nothing, 1, __ATOMIC_SEQ_CST);
    return 0;
}

static void run(void *(*code)(void *), int threads) {
    pthread_t ids[THREADS];
    pthread_barrier_init(&start, 0, threads);
    for (long number = 0; number < threads; number++)
        pthread_create(&ids[number], 0, code, (void *)number);
    for (int number = 0; number < threads; number++)
        pthread_join(ids[number], 0);
}

int main(void) {
    ticket.next = 1, ticket.serving = 1;
    // `xadd` returns what was there.
    run(work, THREADS);
    int missed = 0;
    for (int round = 0; round < 20; round++) {
        flags[0] = flags[1] = saw_nothing = 0;
        run(both, 2);
        missed += saw_nothing == 2;
    }
    printf("%d %d %d %ld %ld %ld %u, %ld %ld, %ld %ld, missed %d\n", apart, line, top, in_register, added, compared, bits,
           (long)pair, (long)(pair >> 64), exchanged.held, ticket.held, missed);
}
