// A server rank. Each worker has a receiver thread for its requests and a sender thread for the answers. Receivers put
// requests into the mailboxes of parts, and config.threads update threads handle the parts that have mail. So several
// parts are updated at the same time, and further requests arrive meanwhile. A timer thread ends pulls that have waited
// too long, and tells workers regularly that this server is alive.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/caught.hpp"
#include "base/condition.hpp"
#include "base/thread.hpp"
#include "dp/ps/link.hpp"
#include "dp/ps/part.hpp"

namespace tutti::dp::ps {

/// Owned by the Node. Any thread may call wait(), abort(), add_to() and state_bytes().
class Server : private Answers {
  public:
    /// Makes the parts. settings and table must outlive this. number: this server's; links: by worker.
    Server(const Settings& settings, const Table& table, int number, std::vector<Link> links);
    ~Server();  // as abort(), if workers are left

    /// Where to write the initial values of one of this server's parts, before start(); nullptr where it only sums.
    std::byte* initial(std::size_t part) { return parts_[part]->initial(); }
    std::size_t state_bytes() const;
    void start();

    /// Waits until all workers have left or died and all their pushes are applied. Throws if this server has failed.
    void wait();
    /// Ends everything. Any thread, any number of times.
    void abort(const Failure& why);
    /// Takes no more requests, hangs up on all workers, and returns when everything that had arrived is applied. For
    /// workers that are alive: when they have left. Any number of times.
    void stop();
    // A part's Snapshot; after stop(), and before start(). Only where servers update.
    void read(std::size_t part, std::byte* snapshot) const { parts_[part]->read(snapshot); }
    void write(std::size_t part, const std::byte* snapshot) { parts_[part]->write(snapshot); }
    /// Whether this server has the part, and no update has failed.
    bool keeps(std::size_t part) const { return parts_[part] != nullptr && !failed_.load(std::memory_order_acquire); }

    void add_to(tuttiPsStatistics_t& statistics) const;

  private:
    struct Answer {
        Header header;
        Pool::Loan values;                      // nullptr if there are none
        std::size_t bytes = 0;                  // length of values
        std::unique_ptr<Text> words = nullptr;  // nullptr if there are none
    };
    /// One worker as this server sees it.
    struct Worker {
        explicit Worker(Link its) : link(std::move(its)) {}
        Link link;
        std::mutex mutex;  // guards the members up to `left`
        Condition changed;
        std::deque<Answer> answers;  // not sent yet
        std::size_t unapplied = 0;   // bytes of gradients received and not applied yet
        bool gone = false;           // it has died, or this server has been aborted
        bool left = false;           // its last answer has been queued
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
    static Answer failure_of(const Error& error);
    void tell(int worker, const Error& why);
    void receive_from(int worker);
    bool take(int worker, const Header& header);
    void send_to(int worker);
    void drop(int worker, bool died);
    void hang_up(Worker& worker);
    void post(std::size_t part, Task task);
    void post_again(const std::vector<Pull>& pulls);
    void post_to_all(Task::Kind kind, int worker);
    void look_after_parts();
    void look_at_the_time();
    void keep_time();
    void fail(const Error& error);

    const Settings& settings_;
    const Table& table_;
    Pool pool_{shared_host()};
    std::vector<std::unique_ptr<Part>> parts_;      // by number; nullptr if another server has the part
    std::vector<std::unique_ptr<Worker>> workers_;  // by number
    Clocks<Pull> clocks_;

    mutable std::mutex mutex_;  // guards the members below, except failed_ and threads_
    std::condition_variable mail_;
    Condition idle_, time_;
    std::deque<std::size_t> ready_;  // parts with mail that no thread handles yet
    std::size_t busy_ = 0;           // parts in ready_, or being handled
    std::size_t live_ = 0;           // workers that have neither left nor died
    bool closing_ = false, aborted_ = false;
    std::optional<Failure> failure_;
    std::atomic<bool> failed_{false};  // failure_ is set; for readers without the mutex
    tuttiPsStatistics_t statistics_ = TUTTI_PS_STATISTICS_INITIALIZER;
    std::vector<Thread> threads_;
};

}  // namespace tutti::dp::ps
