// A rank that serves. For each worker a thread receives requests and another one sends answers. Requests go to the
// mailboxes of parts, and a few threads look after the parts that have mail: so updates of several parts run side by
// side, and beside the transfers of the next ones. A timer looks for what has waited too long, and tells workers that
// this server lives.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/caught.hpp"
#include "base/thread.hpp"
#include "dp/ps/link.hpp"
#include "dp/ps/part.hpp"

namespace tutti::dp::ps {

class Server : private Answers {
  public:
    /// Makes the parts. settings and table outlive this; links by worker.
    Server(const Settings& settings, const Table& table, int number, std::vector<Link> links);
    ~Server();  // as abort(), if workers are left

    /// Before start(): where the values of a part of this server begin; nullptr where it only sums.
    std::byte* initial(std::size_t part) { return parts_[part]->initial(); }
    std::size_t state_bytes() const;
    void start();

    /// Returns when all workers have left or died, and all they have pushed is applied. Throws why this has failed.
    void wait();
    /// Ends everything. Any thread, any number of times.
    void abort(const Failure& why);

    void add_to(tuttiPsStatistics_t& statistics) const;

  private:
    struct Answer {
        Header header;
        Pool::Loan values;
        std::size_t bytes = 0;  // of them
        std::unique_ptr<Text> words = nullptr;
    };
    struct Worker {
        explicit Worker(Link its) : link(std::move(its)) {}
        Link link;
        std::mutex mutex;
        std::condition_variable changed;
        std::deque<Answer> answers;
        std::size_t unapplied = 0;  // bytes of gradients
        bool gone = false;          // it has died, or this server has been aborted
        bool left = false;          // no answer follows
        Thread receiver, sender;
    };

    // Answers
    void values(int worker, std::uint64_t ticket, std::size_t part, Pool::Loan values, long long stale) override;
    void snapshot(int worker, std::uint64_t ticket, std::size_t part, Pool::Loan data) override;
    void refuse(int worker, std::uint64_t ticket, std::size_t part, const Error& why) override;
    std::optional<long long> admit(std::size_t part, const Task& pull) override;
    void updated(int worker, long long clock, long long stale, long long missed) override;

    struct Pull {
        std::size_t part;
        int worker;
        std::uint64_t ticket;
        long long clock;
    };
    Worker& worker(int number) { return *workers_[static_cast<std::size_t>(number)]; }
    void answer(int worker, Answer answer);
    void receive_from(int worker);
    bool take(int worker, const Header& header);
    void send_to(int worker);
    void drop(int worker, bool died);
    void post(std::size_t part, Task task);
    void post_again(const std::vector<Pull>& pulls);
    void post_to_all(Task::Kind kind, int worker);
    void look_after_parts();
    void keep_time();
    void fail(const Error& error);

    const Settings& settings_;
    const Table& table_;
    Pool pool_{shared_host()};
    std::vector<std::unique_ptr<Part>> parts_;  // by number; nullptr: another server's
    std::vector<std::unique_ptr<Worker>> workers_;
    Clocks<Pull> clocks_;

    mutable std::mutex mutex_;
    std::condition_variable mail_, idle_, time_;
    std::deque<std::size_t> ready_;  // parts with mail
    std::size_t busy_ = 0;           // parts with mail, or looked after
    std::size_t live_ = 0;           // workers
    bool closing_ = false, aborted_ = false;
    std::optional<Failure> failure_;
    std::atomic<bool> failed_{false};
    tuttiPsStatistics_t statistics_ = TUTTI_PS_STATISTICS_INITIALIZER;
    std::vector<Thread> threads_;
};

}  // namespace tutti::dp::ps
