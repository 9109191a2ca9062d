#include "dp/on_arrival.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tutti::dp {
namespace {

DataType half_of(const Options& o) {
    return o.compression == tuttiDpFp16 ? DataType::float16 : DataType::bfloat16;
}

}  // namespace

/// What this rank gives to a Node among so many ranks. Errors become the refusal.
ps::Node::Request OnArrival::node_request(const char* function, std::optional<Error> refusal, int ranks) const {
    ps::Node::Request request;
    request.function = function;
    request.item = "parameter";
    request.refusal = std::move(refusal);
    if (request.refusal) return request;
    const Options& o = options();
    const bool first = !node_;
    try {
        deal_shards(o, std::vector<std::uint64_t>(static_cast<std::size_t>(ranks)), first);  // enough for the servers
        tuttiPsConfig_t config = TUTTI_PS_CONFIG_INITIALIZER;
        const int server = o.server_of(ranks);
        config.servers = o.servers_of(ranks);
        if (o.mode == tuttiDpServer) config.serverRanks = &server;
        config.dedicated = o.dedicated_servers(ranks) > 0;
        config.optimizer = o.optimizer;
        config.staleness = o.staleness;
        config.threads = o.updateThreads;
        config.stream = o.stream;
        request.settings = ps::read_settings(&config, ranks);
        std::vector<tuttiPsKey_t> keys;
        for (const Parameter& p : registration_.parameters) {
            if (!p.is_trained()) continue;
            if (p.grad_type != p.type)
                fail(tuttiInvalidArgument,
                     "tuttiDpCreate: the gradient of '%s' is of another type than its values, which config.onArrival "
                     "does not convert",
                     p.name.c_str());
            keys.push_back({p.name.c_str(), p.count, static_cast<tuttiDataType_t>(p.type), p.data});
        }
        request.keys = ps::read_keys(keys.data(), keys.size(), request.settings);
        for (std::size_t p = 0, k = 0; p < registration_.parameters.size(); ++p) {
            if (!registration_.parameters[p].is_trained()) continue;
            const tuttiDpGroup_t& its = o.own_groups[static_cast<std::size_t>(registration_.parameters[p].group)];
            ps::Key& key = request.keys[k++];
            key.number = p;
            key.rate_factor = its.learningRateFactor;
            key.weight_decay = its.weightDecay;
            if (o.sends_halves() && key.type == DataType::float32) key.push_type = half_of(o);
        }
        request.texts.push_back(o.describe(first));
        for (const Parameter& p : registration_.parameters) request.texts.push_back(describe(p));
    } catch (...) {
        request.refusal = caught();
    }
    return request;
}

OnArrival::OnArrival(Engine::Request request, tuttiComm_t comm)
    : registration_(std::move(request.registration)),
      iteration_(registration_.parameters),
      loss_scale_(options().lossScale, options().lossScaleWindow) {
    int ranks = 0;
    must(tuttiCommCount(comm, &ranks));
    alone_ = ranks == 1;
    try {
        if (!request.refusal) check_memory(comm);
    } catch (...) {
        request.refusal = caught();
    }
    node_ = std::make_unique<ps::Node>(node_request("tuttiDpCreate", std::move(request.refusal), ranks), comm);
    const std::vector<Parameter>& parameters = registration_.parameters;
    for (std::size_t p = 0; p < parameters.size(); ++p)
        if (parameters[p].is_trained()) trained_.push_back(p);
    const Layout each = lay_out(parameters, trained_, {0, 0, 1, true, false});
    iteration_.lay_out(each, false);
    statistics_.lay_out(each);
    sends_.resize(parameters.size(), 0);
    gradients_.resize(parameters.size(), nullptr);
    halves_.resize(parameters.size());
    for (std::size_t p = 0; p < parameters.size(); ++p) {
        values_.push_back(own(parameters[p].data, p));
        if (!parameters[p].is_trained())
            must(tuttiBroadcast(values_[p], values_[p], bytes_of(p), tuttiUint8, 0, comm, here_->stream()));
    }
    here_->settle();
    if (!node_->works()) return;
    make_gradients();
    pull_values("tuttiDpCreate");
}

/// Finds out where this rank is. Throws if the caller's memory is elsewhere.
void OnArrival::check_memory(tuttiComm_t comm) {
    must(tuttiCommDevice(comm, &device_));
    const bool on_gpu = device_ != TUTTI_DEVICE_CPU;
    here_ = on_gpu ? gpu_backend(device_, options().stream) : shared_host();
    for (const Parameter& p : registration_.parameters)
        for (const void* at : {p.data, p.grad})
            if (at != nullptr && !here_->reaches(at))
                fail(tuttiInvalidArgument,
                     "tuttiDpCreate: '%s' has its %s at %p, in the memory of %s, but the rank is on %s", p.name.c_str(),
                     at == p.data ? "values" : "gradient", at, on_gpu ? "the host" : "a GPU",
                     on_gpu ? text("device %d", device_).c_str() : "a CPU");
}

/// The caller's memory, or new memory for a parameter if the caller has none.
std::byte* OnArrival::own(void* callers, std::size_t p) {
    if (callers != nullptr) return static_cast<std::byte*>(callers);
    return memory_.emplace_back(std::make_unique<Block>(here_, bytes_of(p)))->base();
}

/// A copy of a parameter's values in the host's memory.
std::vector<std::byte> OnArrival::fetched(std::size_t p) const {
    std::vector<std::byte> copy(bytes_of(p));
    here_->copy_now(copy.data(), values_[p], copy.size());
    return copy;
}

/// Makes what a worker needs, unless it is there.
void OnArrival::make_gradients() {
    for (const std::size_t p : trained_) {
        if (gradients_[p] != nullptr) continue;
        const Parameter& its = registration_.parameters[p];
        if (options().sends_halves() && its.type == DataType::float32)
            halves_[p] = std::make_unique<Block>(here_, bytes_of(p) / 2);
        gradients_[p] = own(its.grad, p);
    }
}

OnArrival::~OnArrival() {
    guarded([&] { leave(); });
}

void OnArrival::leave() {
    if (!node_) return;
    const std::unique_ptr<ps::Node> leaving = std::move(node_);
    leaving->leave();
}

/// This rank as a worker. Throws if it only serves, or is between two sets of ranks.
ps::Client& OnArrival::client(const char* function) {
    if (moving_) fail(tuttiInvalidUsage, "%s: a tuttiDpMove has failed half-way: call it again", function);
    return node_->client(function);
}

std::size_t OnArrival::bytes_of(std::size_t p) const {
    return registration_.parameters[p].count * size_of(registration_.parameters[p].type);
}

std::size_t OnArrival::checked(std::size_t p, const char* function) const {
    if (p >= registration_.parameters.size())
        fail(tuttiInvalidArgument, "%s: parameter is %zu; there are %zu", function, p, registration_.parameters.size());
    return p;
}

void* OnArrival::gradient(std::size_t p) {
    client("tuttiDpGradient");  // throws if this rank only serves
    refuse_still("tuttiDpGradient", registration_.parameters[p]);
    return gradients_[p];
}

void* OnArrival::data(std::size_t p) {
    return values_[p];
}

/// Pulls the values of all trained parameters; waits as config.staleness requires. Returns by how many steps this rank
/// was ahead of the slowest one, at most the number of the last bin. Also if it throws, no pull is under way then.
int OnArrival::pull_values(const char* function) {
    const tuttiPsStatistics_t before = node_->statistics();
    // If a server is known to have died, nobody waits for what the others would answer: it may take them long.
    for (std::size_t key = 0; key < trained_.size(); ++key) client(function).check_pull(function, key);
    std::vector<tuttiPsRequest_t> requests;
    requests.reserve(trained_.size());
    std::optional<Error> first;
    for (std::size_t key = 0; key < trained_.size() && !first; ++key)
        keep_first(first, [&] {
            requests.push_back(client(function).request(function, key, nullptr, values_[trained_[key]]));
        });
    for (const tuttiPsRequest_t request : requests)
        keep_first(first, [&] { client(function).wait_while_all_serve(request); });
    if (first) throw *first;
    const tuttiPsStatistics_t after = node_->statistics();
    int stale = TUTTI_PS_BINS - 1;
    while (stale > 0 && after.pullStaleness[stale] == before.pullStaleness[stale]) --stale;
    return stale;
}

void OnArrival::begin() {
    if (!node_->works()) return;
    if (iteration_.phase != Phase::idle)
        fail(tuttiInvalidUsage, "tuttiDpBegin: the iteration before has not ended with tuttiDpStep");
    statistics_.stale(pull_values("tuttiDpBegin"));
    statistics_.begin();
    loss_scale_.begin();
    if (options().zeroGrad)
        for (const std::size_t p : trained_)
            here_->zero(registration_.parameters[p].type, gradients_[p], registration_.parameters[p].count);
    iteration_.begin();
    sent_ = false;
}

void OnArrival::no_sync(bool on) {
    if (!node_->works()) return;
    iteration_.expect(Phase::collecting, "tuttiDpNoSync", "call tuttiDpBegin first");
    iteration_.no_sync(on);
}

void OnArrival::grad_ready(std::size_t p, const void* made_at) {
    if (!node_->works()) return;
    iteration_.expect(Phase::collecting, "tuttiDpGradReady", "call tuttiDpBegin first");
    const Parameter& parameter = registration_.parameters[p];
    refuse_still("tuttiDpGradReady", parameter);
    if (made_at != nullptr) check_source(parameter, made_at, *here_);
    const bool again = iteration_.touched(p);
    iteration_.ready(p);
    if (made_at != nullptr && again)
        here_->add(parameter.type, gradients_[p], parameter.type, made_at, parameter.count);
    else if (made_at != nullptr)
        here_->copy(gradients_[p], made_at, parameter.count * size_of(parameter.type));
    const auto complete = [&](std::size_t) {
        if (const Parameter& its = registration_.parameters[p]; !options().sum && options().microBatches > 1)
            here_->divide(its.type, gradients_[p], its.count, options().microBatches);
        if (needs_all()) return false;
        clamp(p);
        send(p, 1);
        return false;
    };
    iteration_.finish(p, complete, [](std::size_t) {});
}

/// Clips by value, and returns the factor of this rank's gradients that undoes the loss scale and clips the norm.
/// nullopt if a gradient of a scaled loss is not finite, so that none is to be sent.
std::optional<double> OnArrival::judge_gradients() {
    const double factor = loss_scale_.factor(), limit = options().clipNorm;
    double sum = squares();
    if (loss_scale_.is_on()) loss_scale_.found(std::isfinite(sum));
    const bool finite = loss_scale_.finite().value_or(true);
    if (finite && options().clipValue > 0) {
        for (const std::size_t p : trained_)
            if (iteration_.is_ready(p)) clamp(p);
        sum = squares();
    }
    const double norm = std::sqrt(sum) * factor;
    if (limit > 0) statistics_.change([&](auto& all) { all.norm = norm; });
    if (!finite) return std::nullopt;
    return limit > 0 && norm > limit ? factor * (limit / norm) : factor;
}

/// The sum of squares of this rank's gradients.
double OnArrival::squares() const {
    std::vector<Run> runs;
    for (const std::size_t p : trained_)
        if (const Parameter& its = registration_.parameters[p]; iteration_.is_ready(p))
            runs.push_back({its.type, gradients_[p], its.count, its.count});
    Squares squares;
    here_->add_squares(runs, squares);
    return squares.value();
}

/// Applies config.clipValue to a gradient.
void OnArrival::clamp(std::size_t p) const {
    const Parameter& its = registration_.parameters[p];
    if (options().clipValue > 0)
        here_->clamp(its.type, gradients_[p], its.count, options().clipValue / loss_scale_.factor());
}

void OnArrival::send(std::size_t p, double unscale) {
    const auto key = static_cast<std::size_t>(std::ranges::lower_bound(trained_, p) - trained_.begin());
    const std::byte* sent = gradients_[p];
    if (halves_[p]) {
        constexpr double most = 65504;  // the largest float16
        const Parameter& its = registration_.parameters[p];
        std::byte* const half = halves_[p]->base();
        here_->convert(half_of(options()), half, its.type, sent, its.count);
        if (options().compression == tuttiDpFp16) here_->clamp(DataType::float16, half, its.count, most);
        sent = half;
    }
    sends_[p] = client("tuttiDpGradReady").request("tuttiDpGradReady", key, sent, nullptr, unscale);
}

void OnArrival::wait_for_sends() {
    std::optional<Error> first;
    for (tuttiPsRequest_t& send : sends_) {
        const tuttiPsRequest_t request = std::exchange(send, 0);
        if (request == 0) continue;
        keep_first(first, [&] { client("tuttiDpSynchronize").wait(request); });
    }
    if (first) throw *first;
}

void OnArrival::synchronize() {
    if (!node_->works()) return;
    iteration_.expect(Phase::collecting, "tuttiDpSynchronize", "call tuttiDpBegin first");
    if (iteration_.no_sync())
        fail(tuttiInvalidUsage, "tuttiDpSynchronize: tuttiDpNoSync is on: switch it off before the last pass");
    if (const std::vector<std::size_t> missing = iteration_.missing();
        !options().findUnusedParameters && !missing.empty())
        fail(tuttiInvalidUsage,
             "tuttiDpSynchronize: %zu of %zu parameters were not ready, '%s' among them. Call tuttiDpGradReady for "
             "every parameter, or set config.findUnusedParameters = 1",
             missing.size(), registration_.parameters.size(), registration_.parameters[missing[0]].name.c_str());
    const Deadline called = Clock::now();
    std::optional<Error> first;  // of a server that has died: what others get is sent all the same
    if (needs_all() && !sent_) {
        const std::optional<double> factor = judge_gradients();
        sent_ = true;
        for (const std::size_t p : trained_)
            if (factor && iteration_.is_ready(p)) keep_first(first, [&] { send(p, *factor); });
    }
    keep_first(first, [&] { wait_for_sends(); });
    if (first) throw *first;
    statistics_.synchronized(called);
    iteration_.phase = Phase::synchronized;
}

void OnArrival::step() {
    if (!node_->works()) return;
    iteration_.expect(Phase::synchronized, "tuttiDpStep", "call tuttiDpSynchronize first, and then Step once");
    client("tuttiDpStep").clock();
    iteration_.phase = Phase::idle;
    if (loss_scale_.finite().value_or(true)) statistics_.change([](auto& all) { ++all.steps; });
}

/// Gradients that were ready have been sent. Makes a step without the others.
void OnArrival::abandon() {
    if (!node_->works()) return;
    iteration_.expect(Phase::collecting, "tuttiDpAbandon", "no iteration is under way");
    iteration_.phase = Phase::synchronized;
    std::optional<Error> first;
    keep_first(first, [&] { wait_for_sends(); });
    step();  // in any case: the others wait for it
    if (first) throw *first;
}

void OnArrival::wait() {
    if (!node_->works()) return;
    wait_for_sends();
    pull_values("tuttiDpWait");
}

void OnArrival::set_learning_rate(double rate) {
    if (!node_->works()) return;
    client("tuttiDpSetLearningRate").set_learning_rate(rate);
    registration_.options.optimizer.learningRate = rate;
}

tuttiDpMemory_t OnArrival::memory() const {
    tuttiDpMemory_t m{};
    for (std::size_t p = 0; p < values_.size(); ++p) {
        m.parameters += bytes_of(p);
        if (gradients_[p] != nullptr) m.gradients += bytes_of(p);
        if (halves_[p]) m.gradients += halves_[p]->bytes();
    }
    m.parameters += node_->statistics().bytes;
    m.states = node_->state_bytes();
    m.staging = saving_bytes();
    return m;
}

tuttiDpStatistics_t OnArrival::statistics() const {
    tuttiDpStatistics_t all = statistics_.all();
    const tuttiPsStatistics_t its = node_->statistics();
    // What is in `all` was before the last move.
    all.largestStaleness = std::max(all.largestStaleness, its.largestPullStaleness);
    all.applied += its.updates;
    all.missed += its.missed;
    return all;
}

}  // namespace tutti::dp
