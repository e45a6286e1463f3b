// Blocks that the standard library makes.
#include <atomic>
#include <list>
#include <map>
#include <memory>
#include <thread>
#include <vector>

struct Job {
    long padding;
    std::atomic<long> done;
};

struct Stop {
    std::atomic<long> visits;
};

struct Session {
    long state[6];
    std::atomic<long> hits;
};

struct Visit {
    long state[5];
    std::atomic<long> pages;
};

int main() {
    std::vector<Job> jobs(8);
    std::list<Stop> stops;
    stops.emplace_back();
    std::shared_ptr<Session> session(new Session());
    auto visit = std::make_shared<Visit>();
    std::map<int, Visit> visits;
    visits[7].pages = 0;
    std::vector<std::thread> workers;
    for (int number = 0; number < 8; number++)
        workers.emplace_back([&, session, visit] {
            for (int round = 0; round < 300; round++) {
                jobs[5].done++;
                stops.front().visits++;
                session->hits++;
                visit->pages++;
                visits.begin()->second.pages++;
            }
        });
    for (std::thread &worker : workers)
        worker.join();
}
