#include "dp/ps/server.hpp"

#include <chrono>
#include <cstdio>

namespace tutti::dp::ps {
namespace {

constexpr std::size_t most_unapplied = std::size_t{64} << 20;  // bytes of a worker's gradients that wait for updates

std::unique_ptr<Text> words_of(const Error& error) {
    auto said = std::make_unique<Text>();
    std::snprintf(said->words, sizeof said->words, "%s", error.what());
    return said;
}

// Requests for parts have the same numbers as tasks, and come first.
constexpr bool is(Header::Kind request, Task::Kind task) {
    return static_cast<int>(request) == static_cast<int>(task);
}
static_assert(is(Header::Kind::push, Task::Kind::push) && is(Header::Kind::pull, Task::Kind::pull) &&
              is(Header::Kind::push_pull, Task::Kind::push_pull) && is(Header::Kind::fetch, Task::Kind::fetch) &&
              is(Header::Kind::store, Task::Kind::store));

}  // namespace

Server::Server(const Settings& settings, const Table& table, int number, std::vector<Link> links)
    : settings_(settings),
      table_(table),
      parts_(table.parts.size()),
      clocks_(settings.worker_ranks.size(), settings.only_sums() ? -1 : settings.staleness),
      live_(links.size()) {
    for (std::size_t p = 0; p < parts_.size(); ++p) {
        if (table.parts[p].server != number) continue;
        const PartPlace& place = table.parts[p];
        const PartContext context{settings, table.keys[place.key], place, p, pool_, *this};
        parts_[p] = settings.only_sums() ? summed_part(context) : updated_part(context);
        ++statistics_.parts;
        statistics_.bytes += table.parts[p].bytes();
    }
    for (Link& link : links) workers_.push_back(std::make_unique<Worker>(std::move(link)));
}

void Server::start() {
    threads_.reserve(static_cast<std::size_t>(settings_.threads) + 1);  // a thread that is not kept would be waited for
    for (int t = 0; t < settings_.threads; ++t)
        threads_.push_back(start_thread("tutti-ps-update", [this] { look_after_parts(); }));
    threads_.push_back(start_thread("tutti-ps-time", [this] { keep_time(); }));
    for (std::size_t w = 0; w < workers_.size(); ++w) {
        const int number = static_cast<int>(w);
        workers_[w]->sender = start_thread("tutti-ps-answer", [this, number] { send_to(number); });
        workers_[w]->receiver = start_thread("tutti-ps-serve", [this, number] { receive_from(number); });
    }
}

Server::~Server() {
    std::size_t left;
    {
        std::lock_guard lock(mutex_);
        left = live_;
    }
    if (left > 0) shielded("the end of a server", [&] { abort({tuttiRemoteError, "the server has been destroyed"}); });
    for (const auto& w : workers_)
        for (Thread* thread : {&w->receiver, &w->sender})
            if (thread->joinable()) thread->join();
    {
        std::lock_guard lock(mutex_);
        closing_ = true;
    }
    mail_.notify_all();
    time_.notify_all();
    for (Thread& thread : threads_) thread.join();
}

void Server::wait() {
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [&] { return failure_ || (live_ == 0 && busy_ == 0); });
    if (!failure_) return;
    // Give the workers time to receive the failure and hang up.
    idle_.wait_for(lock, std::chrono::milliseconds(settings_.timeoutMs), [&] { return live_ == 0 || aborted_; });
    throw failure_->error();
}

void Server::abort(const Failure& why) {
    {
        std::lock_guard lock(mutex_);
        if (!failure_) failure_ = why;
        aborted_ = true;
        failed_.store(true, std::memory_order_release);
    }
    idle_.notify_all();
    for (const auto& w : workers_) hang_up(*w);
}

/// Ends the link to a worker, and by that its threads here.
void Server::hang_up(Worker& w) {
    {
        std::lock_guard lock(w.mutex);
        w.gone = true;
    }
    w.changed.notify_all();
    w.link.abort();
}

void Server::stop() {
    for (const auto& w : workers_) hang_up(*w);
    for (const auto& w : workers_)
        for (Thread* thread : {&w->receiver, &w->sender})
            if (thread->joinable()) thread->join();
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [&] { return busy_ == 0; });
}

Server::Answer Server::failure_of(const Error& error) {
    Header header{Header::Kind::failure};
    header.code = error.code();
    return {header, {}, 0, words_of(error)};
}

/// Fails this server, because an update has failed: sends the error to all workers, which then hang up. Where there is
/// no memory for that, this server hangs up.
void Server::fail(const Error& error) {
    {
        std::lock_guard lock(mutex_);
        if (failure_) return;
        failure_ = Failure::of(error);
        failed_.store(true, std::memory_order_release);
    }
    idle_.notify_all();
    for (std::size_t w = 0; w < workers_.size(); ++w) {
        try {
            answer(static_cast<int>(w), failure_of(error));
        } catch (const std::bad_alloc&) {
            hang_up(*workers_[w]);
        }
    }
}

// ---------------------------------------------------------------------------------------------------------- requests

void Server::receive_from(int number) {
    Worker& w = worker(number);
    try {
        while (take(number, receive<Header>(w.link.up, to_worker))) {
        }
    } catch (...) {
        // Links end by other errors. This one is of this host, which has no memory, for example.
        if (const Error why = caught(); why.code() == tuttiSystemError) tell(number, why);
        drop(number, true);
        return;
    }
    drop(number, false);
    try {
        answer(number, {Header{Header::Kind::bye}, {}});
    } catch (...) {
        hang_up(w);
    }
}

/// Tells a worker why it will be dropped, and gives it time to hang up: the link's end might overtake the words.
void Server::tell(int number, const Error& why) {
    Worker& w = worker(number);
    try {
        answer(number, failure_of(why));
    } catch (const std::bad_alloc&) {
        return;
    }
    const auto hung_up = [&] {
        tuttiResult_t state = tuttiSuccess;
        return tuttiCommGetAsyncError(w.link.up, &state) != tuttiSuccess || state != tuttiSuccess;
    };
    const auto end = Clock::now() + std::chrono::milliseconds(settings_.timeoutMs);
    std::unique_lock lock(w.mutex);
    while (!w.gone && Clock::now() < end && !hung_up())
        w.changed.wait_for(lock, std::chrono::milliseconds(20), [&] { return w.gone; });
}

/// Handles one message of a worker. Returns false if it was the last one.
bool Server::take(int number, const Header& header) {
    Worker& w = worker(number);
    using Kind = Header::Kind;
    if (header.kind == Kind::leave) return false;
    if (header.kind == Kind::beat) return true;
    if (header.kind == Kind::clock) {
        post_again(clocks_.tick(number));
        return true;
    }
    const bool asks = header.kind <= Kind::store, whole = header.kind == Kind::fetch || header.kind == Kind::store;
    if (!asks || header.part >= parts_.size() || !parts_[header.part] || (whole && settings_.only_sums()))
        tutti::fail(tuttiInternalError, "a worker's request %d for part %u", static_cast<int>(header.kind),
                    header.part);
    Task task{static_cast<Task::Kind>(header.kind), number, header.ticket, 0, header.rate, header.unscale, {}};
    const PartPlace& place = table_.parts[header.part];
    const bool pushes = header.kind == Kind::push || header.kind == Kind::push_pull;
    if (pushes || header.kind == Kind::store) {
        task.bytes = pushes ? place.push_bytes() : Snapshot(settings_, place).bytes;
        {
            std::unique_lock lock(w.mutex);
            w.changed.wait(lock,
                           [&] { return w.gone || w.unapplied == 0 || w.unapplied + task.bytes <= most_unapplied; });
        }
        task.gradient = pool_.take(task.bytes);
        receive(w.link.up, to_worker, task.gradient->base(), task.bytes);
        if (pushes && !settings_.only_sums()) task.clock = clocks_.push(number);
        std::lock_guard lock(w.mutex);
        w.unapplied += task.bytes;
    } else {
        task.clock = clocks_.ticks(number);
    }
    post(header.part, std::move(task));
    return true;
}

/// Drops a worker that has left or died, so that no pull waits for it any more.
void Server::drop(int number, bool died) {
    Worker& w = worker(number);
    {
        std::lock_guard lock(w.mutex);
        died |= w.gone;
        w.gone = died;
    }
    if (died) w.link.abort();
    w.changed.notify_all();
    try {
        post_again(clocks_.drop(number));
        if (settings_.only_sums()) post_to_all(Task::Kind::drop, number);
    } catch (...) {  // pulls may wait for it for ever
        fail(caught());
    }
    {
        std::lock_guard lock(mutex_);
        --live_;
        statistics_.lost += died;
    }
    idle_.notify_all();
}

// ----------------------------------------------------------------------------------------------------------- answers

void Server::answer(int number, Answer one) {
    Worker& w = worker(number);
    {
        std::lock_guard lock(w.mutex);
        if (w.gone || w.left) return;
        w.left = one.header.kind == Header::Kind::bye;
        w.answers.push_back(std::move(one));
    }
    w.changed.notify_all();
}

void Server::send_to(int number) {
    Worker& w = worker(number);
    try {
        for (;;) {
            std::unique_lock lock(w.mutex);
            w.changed.wait(lock, [&] { return w.gone || !w.answers.empty(); });
            if (w.gone) return;
            const Answer one = std::move(w.answers.front());
            w.answers.pop_front();
            lock.unlock();
            send(w.link.down, to_worker, one.header);
            if (one.words) send(w.link.down, to_worker, *one.words);
            if (one.values) send(w.link.down, to_worker, one.values->base(), one.bytes);
            if (one.header.kind == Header::Kind::bye) return;
        }
    } catch (...) {
        hang_up(w);  // so that the receiver thread ends, too
    }
}

void Server::values(int number, std::uint64_t ticket, std::size_t part, Pool::Loan values, long long stale) {
    Header header{Header::Kind::values};
    header.part = static_cast<std::uint32_t>(part);
    header.ticket = ticket;
    header.number = stale;
    answer(number, {header, std::move(values), table_.parts[part].bytes()});
}

void Server::snapshot(int number, std::uint64_t ticket, std::size_t part, Pool::Loan data) {
    Header header{data ? Header::Kind::snapshot : Header::Kind::stored};
    header.part = static_cast<std::uint32_t>(part);
    header.ticket = ticket;
    answer(number, {header, std::move(data), Snapshot(settings_, table_.parts[part]).bytes});
}

void Server::refuse(int number, std::uint64_t ticket, std::size_t part, const Error& why) {
    Header header{Header::Kind::refusal};
    header.part = static_cast<std::uint32_t>(part);
    header.ticket = ticket;
    header.code = why.code();
    answer(number, {header, {}, 0, words_of(why)});
}

std::optional<long long> Server::admit(std::size_t part, const Task& pull) {
    return clocks_.admit(pull.clock, {part, pull.worker, pull.ticket, pull.clock},
                         Clock::now() + std::chrono::milliseconds(settings_.timeoutMs));
}

void Server::updated(int number, long long clock, long long stale, long long missed) {
    {
        std::lock_guard lock(mutex_);
        tuttiPsStatistics_t& s = statistics_;
        ++s.updates;
        s.largestStaleness = std::max(s.largestStaleness, static_cast<int>(stale));
        ++s.staleness[std::min<long long>(stale, TUTTI_PS_BINS - 1)];
        s.missed += missed;
        s.largestMissed = std::max(s.largestMissed, missed);
    }
    post_again(clocks_.applied(number, clock));
}

// ------------------------------------------------------------------------------------------------------------- parts

void Server::post(std::size_t index, Task task) {
    Part& part = *parts_[index];
    {
        std::lock_guard lock(part.mutex);
        part.mail.push_back(std::move(task));
        if (std::exchange(part.scheduled, true)) return;
    }
    try {
        std::lock_guard lock(mutex_);
        ready_.push_back(index);
        ++busy_;
    } catch (...) {  // nobody will look after this part, whose mail may be other workers', too
        fail(caught());
    }
    mail_.notify_one();
}

void Server::post_again(const std::vector<Pull>& pulls) {
    for (const Pull& pull : pulls) post(pull.part, {Task::Kind::pull, pull.worker, pull.ticket, pull.clock, 0, 1, {}});
}

void Server::post_to_all(Task::Kind kind, int number) {
    for (std::size_t p = 0; p < parts_.size(); ++p)
        if (parts_[p]) post(p, {kind, number, 0, 0, 0, 1, {}});
}

/// The loop of an update thread. It takes a part that has mail, and handles its mail until there is none.
void Server::look_after_parts() {
    for (;;) {
        std::size_t index;
        {
            std::unique_lock lock(mutex_);
            mail_.wait(lock, [&] { return closing_ || !ready_.empty(); });
            if (ready_.empty()) return;
            index = ready_.front();
            ready_.pop_front();
        }
        Part& part = *parts_[index];
        for (;;) {
            std::unique_lock lock(part.mutex);
            if (part.mail.empty()) {
                part.scheduled = false;
                break;
            }
            Task task = std::move(part.mail.front());
            part.mail.pop_front();
            lock.unlock();
            const std::size_t bytes = task.bytes;
            const int from = task.worker;
            try {
                if (!failed_.load(std::memory_order_acquire)) part.handle(task);
            } catch (...) {
                fail(caught());
            }
            if (bytes == 0) continue;
            Worker& w = worker(from);
            {
                std::lock_guard counted(w.mutex);
                w.unapplied -= bytes;
            }
            w.changed.notify_all();
        }
        {
            std::lock_guard lock(mutex_);
            --busy_;
        }
        idle_.notify_all();
    }
}

/// Sends beats, and refuses pulls that have waited too long.
void Server::look_at_the_time() {
    for (std::size_t w = 0; w < workers_.size(); ++w) answer(static_cast<int>(w), {Header{Header::Kind::beat}, {}, {}});
    if (settings_.only_sums()) post_to_all(Task::Kind::expire, -1);
    for (const Pull& pull : clocks_.expired(Clock::now())) {
        const auto slow = clocks_.who_is_slowest();
        refuse(
            pull.worker, pull.ticket, pull.part,
            Error(tuttiTimeout,
                  text("the worker on rank %d is at clock %lld, and %lld, with a staleness of %d, is to wait for it: "
                       "longer than %d ms",
                       slow.worker < 0 ? -1 : settings_.worker_ranks[static_cast<std::size_t>(slow.worker)], slow.clock,
                       pull.clock, settings_.staleness, settings_.timeoutMs)));
    }
}

/// The loop of the timer thread, which looks at the time eight times per time-out.
void Server::keep_time() {
    const auto period = std::chrono::milliseconds(std::max(1, settings_.timeoutMs / 8));
    std::unique_lock lock(mutex_);
    while (!time_.wait_for(lock, period, [&] { return closing_; })) {
        lock.unlock();
        shielded("the time-outs of a server", [&] { look_at_the_time(); });
        lock.lock();
    }
}

std::size_t Server::state_bytes() const {
    std::size_t bytes = 0;
    for (const auto& part : parts_) bytes += part ? part->state_bytes() : 0;
    return bytes;
}

void Server::add_to(tuttiPsStatistics_t& s) const {
    std::lock_guard lock(mutex_);
    s.updates = statistics_.updates;
    s.largestStaleness = statistics_.largestStaleness;
    std::copy_n(statistics_.staleness, TUTTI_PS_BINS, s.staleness);
    s.missed = statistics_.missed;
    s.largestMissed = statistics_.largestMissed;
    s.workers = static_cast<int>(live_);
    s.lost = statistics_.lost;
    s.parts = statistics_.parts;
    s.bytes = statistics_.bytes;
}

}  // namespace tutti::dp::ps
