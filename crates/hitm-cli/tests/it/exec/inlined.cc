// A variable of main, and a constructor that is inlined into main and makes the threads.
#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

struct Visits {
    std::atomic<long> hits{0};
    long padding[7];
};

class Pool {
    std::function<void()> job;
    std::vector<std::thread> workers;

public:
    Pool(int threads, std::function<void()> work) : job(std::move(work)) {
        for (int number = 0; number < threads; number++)
            workers.emplace_back([this] { loop(); });
    }
    void loop() {
        for (int round = 0; round < 3000; round++)
            job();
    }
    ~Pool() {
        for (std::thread &worker : workers)
            worker.join();
    }
};

int main() {
    Visits visits;
    auto pool = std::make_unique<Pool>(8, [&] { visits.hits++; });
}
