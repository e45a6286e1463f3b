// The standard library's threads, locks, exceptions and thread-local objects.
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <shared_mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

static thread_local int depth;
static std::atomic<int> ended{0};

struct Last {
    int value = 1;
    ~Last() { ended += value; }
};
static thread_local Last last;

struct Base {
    virtual ~Base() = default;
    virtual int area() const { return 1; }
};
struct Square : Base {
    int area() const override { return 4; }
};

int main() {
    std::mutex mutex;
    std::shared_mutex shared;
    std::condition_variable changed;
    std::atomic<int> sum{0}, thrown{0}, area{0};
    int ready = 0;
    std::vector<std::thread> threads;
    for (int number = 0; number < 8; number++)
        threads.emplace_back([&, number] {
            for (int round = 0; round < 100; round++) {
                depth++;
                last.value = 2;
                std::shared_lock<std::shared_mutex> reader(shared);
                sum += 1;
            }
            try {
                throw std::runtime_error("thread " + std::to_string(number));
            } catch (const std::exception &) {
                thrown += depth;
            }
            Square square;
            const Base &base = square;
            area += base.area();
            std::unique_lock<std::mutex> lock(mutex);
            ready++;
            changed.notify_all();
            changed.wait(lock, [&] { return ready == 8; });
        });
    for (auto &thread : threads)
        thread.join();
    std::printf("sum %d, thrown %d, area %d, ended %d\n", sum.load(), thrown.load(), area.load(), ended.load());
}
