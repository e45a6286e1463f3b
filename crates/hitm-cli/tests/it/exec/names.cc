// Blocks that containers of the standard library make.
#include <atomic>
#include <list>
#include <thread>
#include <vector>

struct Job {
    long padding;
    std::atomic<long> done;
};

struct Stop {
    std::atomic<long> visits;
};

int main() {
    std::vector<Job> jobs(8);
    std::list<Stop> stops;
    stops.emplace_back();
    std::vector<std::thread> workers;
    for (int number = 0; number < 8; number++)
        workers.emplace_back([&jobs, &stops] {
            for (int round = 0; round < 300; round++) {
                jobs[5].done++;
                stops.front().visits++;
            }
        });
    for (std::thread &worker : workers)
        worker.join();
}
