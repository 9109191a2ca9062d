#include "dp/numbers.hpp"
#include "dp/ps/part.hpp"

namespace tutti::dp::ps {
namespace {

class SummedPart : public Part {
  public:
    explicit SummedPart(const PartContext& c)
        : c_(c),
          sum_type_(size_of(c.place.type) < 4 ? DataType::float32 : c.place.type),
          workers_(c.settings.worker_ranks.size()) {}

    std::byte* initial() override { return nullptr; }

    void handle(Task& task) override {
        if (task.kind == Task::Kind::push || task.kind == Task::Kind::push_pull) push(task);
        if (task.kind == Task::Kind::pull || task.kind == Task::Kind::push_pull) pull(task);
        if (task.kind == Task::Kind::drop) drop(task.worker);
        if (task.kind == Task::Kind::expire) expire();
    }

  private:
    struct Waiting {
        int worker;
        std::uint64_t ticket;
        Deadline deadline;
    };
    struct Round {
        std::vector<Pool::Loan> gradients;  // by worker: those that have arrived and are not in the sum yet
        std::size_t next = 0;               // the next worker in the order of the sum
        int divisor = 0;                    // how many gradients are in the sum
        bool done = false;
        Pool::Loan sum;                // of sum_type_; when done, of the key's type
        std::vector<Waiting> waiting;  // pulls to answer when done
    };
    struct Worker {
        long long pushed = 0;  // pushes so far
        bool lives = true;
    };
    Worker& worker(int number) { return workers_[static_cast<std::size_t>(number)]; }

    void push(Task& task) {
        const auto index = static_cast<std::size_t>(worker(task.worker).pushed++ - first_);
        while (rounds_.size() <= index) rounds_.emplace_back().gradients.resize(workers_.size());
        rounds_[index].gradients[static_cast<std::size_t>(task.worker)] = std::move(task.gradient);
        advance(rounds_[index]);
        forget();
    }

    /// Adds gradients that have arrived, as far as the order of workers allows. Skips workers that have left without
    /// pushing this round.
    void advance(Round& round) {
        for (; round.next < workers_.size(); ++round.next) {
            Pool::Loan& gradient = round.gradients[round.next];
            if (gradient)
                add(round, std::move(gradient));
            else if (workers_[round.next].lives)
                return;
        }
        if (!std::exchange(round.done, true)) finish(round);
    }

    void add(Round& round, Pool::Loan gradient) {
        const PartPlace& place = c_.place;
        if (round.divisor++ > 0) {
            dp::add(sum_type_, round.sum->base(), place.type, gradient->base(), place.count);
        } else if (sum_type_ == place.type) {
            round.sum = std::move(gradient);
        } else {
            round.sum = c_.pool.take(place.count * size_of(sum_type_));
            convert(sum_type_, round.sum->base(), place.type, gradient->base(), place.count);
        }
    }

    void finish(Round& round) {
        const PartPlace& place = c_.place;
        if (round.divisor == 0) return;  // no worker has pushed this round, so none will pull it
        if (c_.settings.average && round.divisor > 1) divide(sum_type_, round.sum->base(), place.count, round.divisor);
        if (sum_type_ != place.type) {
            const Pool::Loan rounded = c_.pool.take(place.bytes());
            convert(place.type, rounded->base(), sum_type_, round.sum->base(), place.count);
            round.sum = rounded;
        }
        for (const Waiting& one : round.waiting) c_.answers.values(one.worker, one.ticket, c_.index, round.sum, 0);
        round.waiting.clear();
    }

    void pull(const Task& task) {
        const long long pushed = worker(task.worker).pushed;
        if (pushed == 0)  // the Client refuses this, too
            return c_.answers.refuse(task.worker, task.ticket, c_.index,
                                     Error(tuttiInvalidUsage, "a pull before the first push"));
        Round& round = rounds_[static_cast<std::size_t>(pushed - 1 - first_)];
        if (round.done)
            c_.answers.values(task.worker, task.ticket, c_.index, round.sum, 0);
        else
            round.waiting.push_back(
                {task.worker, task.ticket, Clock::now() + std::chrono::milliseconds(c_.settings.timeoutMs)});
    }

    void drop(int gone) {
        worker(gone).lives = false;
        for (Round& round : rounds_) {
            std::erase_if(round.waiting, [&](const Waiting& one) { return one.worker == gone; });
            advance(round);
        }
        forget();
    }

    /// Drops rounds that no worker can pull any more: every living worker has pushed a later one.
    void forget() {
        const auto is_past = [&](const Worker& w) { return !w.lives || w.pushed > first_ + 1; };
        while (!rounds_.empty() && rounds_.front().done && std::ranges::all_of(workers_, is_past)) {
            rounds_.pop_front();
            ++first_;
        }
    }

    void expire() {
        const Deadline now = Clock::now();
        for (Round& round : rounds_)
            std::erase_if(round.waiting, [&](const Waiting& one) {
                if (one.deadline > now) return false;
                const int slow = c_.settings.worker_ranks[round.next];
                c_.answers.refuse(
                    one.worker, one.ticket, c_.index,
                    Error(tuttiTimeout, text("the worker on rank %d has not pushed its gradient for %d ms", slow,
                                             c_.settings.timeoutMs)));
                return true;
            });
    }

    const PartContext c_;
    const DataType sum_type_;
    std::vector<Worker> workers_;
    std::deque<Round> rounds_;  // consecutive, beginning with round first_
    long long first_ = 0;
};

}  // namespace

std::unique_ptr<Part> summed_part(const PartContext& context) {
    return std::make_unique<SummedPart>(context);
}

}  // namespace tutti::dp::ps
