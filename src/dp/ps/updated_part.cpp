#include <cstring>
#include <utility>

#include "dp/optimizer.hpp"
#include "dp/options.hpp"
#include "dp/ps/part.hpp"

namespace tutti::dp::ps {
namespace {

class UpdatedPart : public Part {
  public:
    explicit UpdatedPart(const PartContext& c)
        : c_(c),
          whole_(c.settings, c.place),
          values_(shared_host(), c.place.bytes()),
          states_memory_(private_host(), std::max<std::size_t>(1, state_bytes())),
          workers_(c.settings.worker_ranks.size()) {
        const std::size_t each = whole_.array_bytes;
        std::byte* at = states_memory_.base();
        if (has_master(c.settings.optimizer.kind, c.place.type)) states_.master = std::exchange(at, at + each);
        for (int i = 0; i < states_of(c.settings.optimizer.kind); ++i) states_.state[i] = std::exchange(at, at + each);
    }

    std::byte* initial() override { return values_.base(); }
    void read(std::byte* at) const override {
        std::memcpy(at, &updates_, sizeof updates_);
        std::memcpy(at + whole_.states_at, states_memory_.base(), state_bytes());
        std::memcpy(at + whole_.values_at, values_.base(), c_.place.bytes());
    }
    void write(const std::byte* from) override {
        std::memcpy(&updates_, from, sizeof updates_);
        std::memcpy(states_memory_.base(), from + whole_.states_at, state_bytes());
        std::memcpy(values_.base(), from + whole_.values_at, c_.place.bytes());
        copied_ = -1;
    }
    std::size_t state_bytes() const override { return whole_.arrays * whole_.array_bytes; }

    void handle(Task& task) override {
        if (task.kind == Task::Kind::push || task.kind == Task::Kind::push_pull) update(task);
        if (task.kind == Task::Kind::pull || task.kind == Task::Kind::push_pull) pull(task);
        if (task.kind == Task::Kind::fetch) fetch(task);
        if (task.kind == Task::Kind::store) store(task);
    }

  private:
    /// What a worker knew at its last pull.
    struct Worker {
        long long seen = 0;   // updates that were in the values it pulled, and its own since then
        long long clock = 0;  // the slowest worker's clock at that pull
    };

    void update(Task& task) {
        const PartPlace& place = c_.place;
        const tuttiDpOptimizer_t& o = c_.settings.optimizer;
        Worker& worker = workers_[static_cast<std::size_t>(task.worker)];
        dp::update({&o, task.rate * c_.key.rate_factor, c_.key.weight_decay, updates_ + 1, task.unscale},
                   {c_.key.number, place.first, place.count, 0}, place.type, values_.base(), place.push_type,
                   task.gradient->base(), states_);
        task.gradient.reset();
        const long long missed = updates_ - worker.seen;
        ++updates_;
        ++worker.seen;
        c_.answers.updated(task.worker, task.clock, task.clock - worker.clock, missed);
    }

    void pull(Task& task) {
        task.kind = Task::Kind::pull;
        const std::optional<long long> slowest = c_.answers.admit(c_.index, task);
        if (!slowest) return;  // the server posts it again later
        Pool::Loan copy = copied_ == updates_ ? copy_.lock() : nullptr;
        if (!copy) {
            copy = c_.pool.take(c_.place.bytes());
            std::memcpy(copy->base(), values_.base(), c_.place.bytes());
            copy_ = copy;
            copied_ = updates_;
        }
        workers_[static_cast<std::size_t>(task.worker)] = {updates_, *slowest};
        c_.answers.values(task.worker, task.ticket, c_.index, std::move(copy), task.clock - *slowest);
    }

    void fetch(const Task& task) {
        Pool::Loan all = c_.pool.take(whole_.bytes);
        read(all->base());
        c_.answers.snapshot(task.worker, task.ticket, c_.index, std::move(all));
    }

    /// Replaces everything by a Snapshot. Shifts `seen` with the number of updates, so that `missed` stays the same.
    void store(const Task& task) {
        const long long before = updates_;
        write(task.gradient->base());
        for (Worker& worker : workers_) worker.seen += updates_ - before;
        c_.answers.snapshot(task.worker, task.ticket, c_.index, nullptr);
    }

    static_assert(sizeof(long long) == 8);
    const PartContext c_;
    const Snapshot whole_;
    const Block values_;
    const Block states_memory_;
    States states_;
    std::vector<Worker> workers_;
    long long updates_ = 0;
    std::weak_ptr<Block> copy_;  // a copy of the values after copied_ updates, which answers under way share
    long long copied_ = -1;      // -1 if there is no copy of the current values
};

}  // namespace

std::unique_ptr<Part> updated_part(const PartContext& context) {
    return std::make_unique<UpdatedPart>(context);
}

}  // namespace tutti::dp::ps
