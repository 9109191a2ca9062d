// Checkpoints with config.onArrival. To save, one rank fetches the values and states from the servers, key by key, into
// a layer of its own, and writes that. To load, it reads a checkpoint and sends the servers their parts.
#include <climits>
#include <cstring>

#include "dp/checkpoint.hpp"
#include "dp/on_arrival.hpp"

namespace tutti::dp {
namespace {

/// The same parameters, registered on one rank that owns all of them and updates them itself.
Registration alone(Registration all) {
    all.options.mode = tuttiDpZero2;  // its values lie bucket by bucket
    all.options.onArrival = all.options.dedicated = all.options.servers = 0;
    all.options.staleness = -1;
    for (Parameter& p : all.parameters) p.data = p.grad = nullptr;
    size_buckets(all.options, all.parameters);
    return all;
}

}  // namespace

/// All values and states of the layer, in a Storage of one rank.
class OnArrival::Whole {
  public:
    explicit Whole(const Registration& like)
        : registration_(alone(like)), storage_(registration_, backends_, Storage::Holds::no_gradients) {
        backends_ = Backends::of(TUTTI_DEVICE_CPU, registration_.options);
        Ranks::Roster roster = Ranks::meet(alone_.comm, false, Verdict{});
        std::vector<Shards> shards = deal_shards(registration_.options, roster.hosts, true);
        ranks_.join(alone_.comm, std::move(roster), std::move(shards));
        storage_.create(ranks_.shards(), backward_order(registration_.parameters));
        none_.residuals.resize(storage_.buckets().size(), nullptr);
        none_.factors = none_.residuals;
    }

    /// Writes the files. The checkpoint replaces the old one in finish().
    void write(const std::string& path, Manifest m) {
        saving_ = std::make_unique<Saving>(path, ranks_, storage_, none_, std::move(m), nullptr);
    }
    void finish() { saving_->finish(ranks_); }
    Manifest load(const std::string& path) {
        Loading loading(path, ranks_, storage_, none_);
        loading.finish(ranks_);
        return loading.manifest();
    }

    std::byte* values(std::size_t still) const { return storage_.values_of(still); }
    std::size_t bytes() const {
        const tuttiDpMemory_t its = storage_.memory();
        return its.parameters + its.states;
    }

    /// Calls body(memory, at, bytes) for each array of a part: its memory here, and its offset in the part's Snapshot.
    template <class Body>
    void each_array(std::size_t parameter, const ps::PartPlace& place, const ps::Snapshot& its, Body body) {
        const Bucket& bucket = storage_.bucket_of(parameter);
        const auto piece = std::ranges::find(bucket.mine, parameter, &Piece::parameter);
        TUTTI_ASSERT(piece != bucket.mine.end() && piece->first == 0);
        std::size_t at = its.states_at;
        for (std::byte* const states : {bucket.states.master, bucket.states.state[0], bucket.states.state[1]}) {
            if (states == nullptr) continue;
            body(states + (piece->at + place.first) * size_of(state_type(place.type)), at, its.array_bytes);
            at += its.array_bytes;
        }
        TUTTI_ASSERT(at == its.values_at);
        body(storage_.value_of(bucket, *piece) + place.first * size_of(place.type), at, place.bytes());
    }

  private:
    struct Communicator {
        Communicator() {
            tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
            config.device = TUTTI_DEVICE_CPU;
            config.blocking = 1;
            tuttiUniqueId id;
            must(tuttiGetUniqueId(&id));
            must(tuttiCommInitRankConfig(&comm, 1, id, 0, &config));
        }
        ~Communicator() { tuttiCommDestroy(comm); }
        Communicator(const Communicator&) = delete;
        tuttiComm_t comm = nullptr;
    };

    const Communicator alone_;
    const Registration registration_;
    Backends backends_;
    Ranks ranks_;
    Storage storage_;
    Kept none_;
    std::unique_ptr<Saving> saving_;
};

/// A save beside training: a thread writes what has been fetched.
struct OnArrival::Beside {
    Beside(std::unique_ptr<Whole> what, const std::string& path, const Manifest& m)
        : whole(std::move(what)), thread(start_thread("tutti-dp-save", [this, path, m] {
              result = Verdict::of([&] { whole->write(path, m); });
          })) {}
    ~Beside() {
        if (thread.joinable()) thread.join();
    }
    Beside(const Beside&) = delete;
    /// Waits for the thread; then the checkpoint replaces the old one.
    void finish() {
        thread.join();
        if (result.code != tuttiSuccess) throw Error(result.code, result.words);
        whole->finish();
    }

    const std::unique_ptr<Whole> whole;
    Verdict result;
    Thread thread;
};

void OnArrival::check_moment(const char* function, const char* path) {
    client(function);  // throws if this rank only serves
    if (path == nullptr || *path == '\0') fail(tuttiInvalidArgument, "%s: path is empty", function);
    iteration_.expect(Phase::idle, function, "call it between tuttiDpStep and tuttiDpBegin");
}

std::size_t OnArrival::saving_bytes() const {
    return saving_ ? saving_->whole->bytes() : 0;
}

void OnArrival::set_note(const char* key, const char* text) {
    text != nullptr ? void(notes_[key] = text) : void(notes_.erase(key));
}

void OnArrival::save_wait() {
    if (const auto saving = std::exchange(saving_, nullptr)) saving->finish();
}

void OnArrival::save(const char* path, bool beside) {
    const char* const function = beside ? "tuttiDpSaveAsync" : "tuttiDpSave";
    check_moment(function, path);
    save_wait();
    auto all = std::make_unique<Whole>(registration_);
    Whole& whole = *all;
    Manifest m;
    m.step = statistics_.all().steps;
    m.learning_rate = options().optimizer.learningRate;
    m.groups = options().own_groups;
    m.scale = loss_scale_.state();
    m.notes = notes_;
    for (std::size_t key = 0; key < trained_.size(); ++key) {
        const std::size_t p = trained_[key];
        ps::Client& from = client(function);
        std::vector<std::byte> snapshots(from.snapshot_bytes(key));
        from.wait(from.fetch(function, key, snapshots.data()));
        const std::byte* part = snapshots.data();
        long long updates = LLONG_MAX;  // the fewest of the key's parts
        node_->each_part(key, [&](const ps::PartPlace& place, const ps::Snapshot& its) {
            long long had = 0;
            std::memcpy(&had, part, sizeof had);
            updates = std::min(updates, had);
            whole.each_array(p, place, its, [&](std::byte* memory, std::size_t at, std::size_t bytes) {
                std::memcpy(memory, part + at, bytes);
            });
            part += its.bytes;
        });
        if (updates != m.step) m.updates[registration_.parameters[p].name] = updates;
    }
    for (std::size_t p = 0; p < values_.size(); ++p)
        if (!registration_.parameters[p].is_trained()) here_->copy_now(whole.values(p), values_[p], bytes_of(p));
    saving_ = std::make_shared<Beside>(std::move(all), path, m);
    if (!beside) save_wait();
}

void OnArrival::load(const char* path) {
    check_moment("tuttiDpLoad", path);
    save_wait();
    Whole whole(registration_);
    const Manifest m = whole.load(path);
    for (std::size_t key = 0; key < trained_.size(); ++key) {
        const std::size_t p = trained_[key];
        ps::Client& to = client("tuttiDpLoad");
        std::vector<std::byte> snapshots(to.snapshot_bytes(key));
        std::byte* part = snapshots.data();
        const auto its_own = m.updates.find(registration_.parameters[p].name);
        const long long updates = its_own != m.updates.end() ? its_own->second : m.step;
        node_->each_part(key, [&](const ps::PartPlace& place, const ps::Snapshot& its) {
            std::memcpy(part, &updates, sizeof updates);
            whole.each_array(p, place, its, [&](const std::byte* memory, std::size_t at, std::size_t bytes) {
                std::memcpy(part + at, memory, bytes);
            });
            part += its.bytes;
        });
        to.wait(to.store("tuttiDpLoad", key, snapshots.data()));
    }
    for (std::size_t p = 0; p < values_.size(); ++p)
        if (!registration_.parameters[p].is_trained()) here_->copy_now(values_[p], whole.values(p), bytes_of(p));
    set_learning_rate(m.learning_rate);
    if (m.scale.scale > 0 && loss_scale_.is_on()) loss_scale_.restore(m.scale);
    notes_ = m.notes;
    statistics_.change([&](auto& all) { all.steps = m.step; });
    pull_values("tuttiDpLoad");
}

}  // namespace tutti::dp
