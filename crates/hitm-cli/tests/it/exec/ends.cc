// Threads that end in the middle of their code, and functions that are to be called once and throw.
#include <atomic>
#include <cstdio>
#include <mutex>
#include <pthread.h>
#include <stdexcept>
#include <thread>

struct Said {
    const char *what;
    ~Said() { std::puts(what); }
};

static std::once_flag once;
static std::atomic<int> tries{0}, thrown{0};

// The first two calls throw. Others wait meanwhile.
static void tries_thrice() {
    std::this_thread::yield();
    if (++tries < 3)
        throw std::runtime_error("not yet");
}

static void calls_once() {
    try {
        std::call_once(once, tries_thrice);
    } catch (const std::runtime_error &) {
        thrown++;
    }
}

static pthread_once_t ending = PTHREAD_ONCE_INIT;
static int ended_in_once;

static void ends_at_first() {
    Said said{"in once"};
    if (++ended_in_once == 1)
        pthread_exit(nullptr);
}

static void *calls_ending(void *) {
    pthread_once(&ending, ends_at_first);
    return nullptr;
}

static thread_local Said last{"thread_local"};

__attribute__((noinline)) static void deeper(int levels) {
    Said said{"deeper"};
    if (levels == 0)
        pthread_exit(const_cast<char *>("value"));
    try {
        deeper(levels - 1);
    } catch (const std::exception &) {
        std::puts("no exception");
    } catch (...) {
        std::puts("caught");
        throw;
    }
}

static void *ends(void *) {
    last.what = "thread_local object";
    Said said{"outermost"};
    deeper(1);
    return nullptr;
}

static void *throws(void *) { throw 1; }

int main(int count, char **) {
    if (count > 1) {
        pthread_t thread;
        pthread_create(&thread, nullptr, throws, nullptr);
        pthread_join(thread, nullptr);
    }
    std::thread threads[4];
    for (auto &thread : threads)
        thread = std::thread(calls_once);
    for (auto &thread : threads)
        thread.join();
    std::printf("tries %d, thrown %d\n", tries.load(), thrown.load());
    pthread_t thread;
    for (int round = 0; round < 2; round++) {
        pthread_create(&thread, nullptr, calls_ending, nullptr);
        pthread_join(thread, nullptr);
    }
    void *value;
    pthread_create(&thread, nullptr, ends, nullptr);
    pthread_join(thread, &value);
    std::puts(static_cast<char *>(value));
    std::fflush(stdout);
    Said said{"main"};
    // The process ends with its last thread.
    pthread_exit(nullptr);
}
