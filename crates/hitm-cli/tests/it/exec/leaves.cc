// One thread ends by `pthread_exit`, another one is cancelled. What lies on their stacks is
// destroyed: the C library unwinds them, through the functions of ours that forward the calls.
#include <cstdio>
#include <pthread.h>
#include <unistd.h>

struct Said {
    const char *what;
    ~Said() { std::puts(what); }
};

static void *ends(void *) {
    Said said{"ended"};
    pthread_exit(nullptr);
}

static void *waits(void *descriptor) {
    Said said{"cancelled"};
    char byte;
    while (read(*static_cast<int *>(descriptor), &byte, 1) >= 0)
        ;
    return nullptr;
}

int main() {
    int ends_of_pipe[2];
    pthread_t thread;
    pthread_create(&thread, nullptr, ends, nullptr);
    pthread_join(thread, nullptr);
    if (pipe(ends_of_pipe) != 0)
        return 1;
    pthread_create(&thread, nullptr, waits, ends_of_pipe);
    pthread_cancel(thread);
    pthread_join(thread, nullptr);
}
