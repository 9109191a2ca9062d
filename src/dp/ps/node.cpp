#include "dp/ps/node.hpp"

#include <cstring>

namespace tutti::dp::ps {

void Node::join(Ranks& ranks, tuttiComm_t comm, const Request& request) {
    int device = TUTTI_DEVICE_CPU;
    must(tuttiCommDevice(comm, &device));
    const Verdict mine = Verdict::of([&] {
        if (request.refusal) throw *request.refusal;
    });
    ranks.join(comm, Ranks::meet(comm, device != TUTTI_DEVICE_CPU, mine));
    // An Engine agrees here, too: ranks whose config.onArrival differs go on alike until they compare their options.
    ranks.all_or_none([&] {
        if (device != TUTTI_DEVICE_CPU) gpu_backend(device, request.settings.stream);  // throws unless it is the GPU's
    });
}

Node::Node(Request request, tuttiComm_t comm) : settings_(std::move(request.settings)) {
    Ranks ranks;
    join(ranks, comm, request);
    rank_ = ranks.rank();
    std::vector<std::string> texts = std::move(request.texts);
    if (texts.empty()) {
        texts.push_back(settings_.describe());
        for (const Key& key : request.keys) texts.push_back(key.describe());
    }
    ranks.agree_on(request.function, request.item, texts);
    int device = TUTTI_DEVICE_CPU;
    must(tuttiCommDevice(comm, &device));
    const BackendPtr callers = device == TUTTI_DEVICE_CPU ? nullptr : gpu_backend(device, settings_.stream);
    ranks.all_or_none([&] { table_ = deal(std::move(request.keys), settings_.partBytes, settings_.servers); });
    Links links = make_links(ranks, settings_);
    ranks.all_or_none([&] {
        if (!links.as_server.empty())
            server_ =
                std::make_unique<Server>(settings_, table_, settings_.server_of(rank_), std::move(links.as_server));
        if (!links.as_worker.empty())
            client_ = std::make_unique<Client>(settings_, table_, std::move(links.as_worker), device, callers);
    });
    if (request.fill)
        request.fill(settings_, table_, server_.get());
    else if (!settings_.only_sums())
        spread_initial_values(ranks, callers.get());
    ranks.all_or_none([&] {
        if (server_) server_->start();
        if (client_) client_->start();
    });
}

/// Sends the initial values from rank 0 to the server of each part. callers: a GPU's memory; nullptr if this rank is on
/// a CPU. Collective.
void Node::spread_initial_values(const Ranks& ranks, Backend* callers) {
    std::vector<std::byte> fetched;
    std::vector<std::uint8_t> given(table_.keys.size());
    for (std::size_t k = 0; k < given.size(); ++k) given[k] = table_.keys[k].initial != nullptr;
    ranks.broadcast(std::span(given), 0);
    for (std::size_t p = 0; p < table_.parts.size(); ++p) {
        const PartPlace& place = table_.parts[p];
        const int owner = settings_.server_ranks[static_cast<std::size_t>(place.server)];
        if (!given[place.key] || (rank_ != 0 && rank_ != owner)) continue;
        std::byte* const to = rank_ == owner ? server_->initial(p) : nullptr;
        const std::byte* from =
            static_cast<const std::byte*>(table_.keys[place.key].initial) + place.first * size_of(place.type);
        if (rank_ == 0 && callers != nullptr && is_on_gpu(table_.keys[place.key].initial)) {
            fetched.resize(place.bytes());
            callers->copy_now(fetched.data(), from, fetched.size());
            from = fetched.data();
        }
        if (owner == 0)
            std::memcpy(to, from, place.bytes());
        else if (rank_ == 0)
            must(tuttiSend(from, place.bytes(), tuttiUint8, owner, ranks.cpu_comm(), nullptr));
        else
            must(tuttiRecv(to, place.bytes(), tuttiUint8, 0, ranks.cpu_comm(), nullptr));
    }
}

Client& Node::client(const char* function) {
    if (!client_) fail(tuttiInvalidUsage, "%s: rank %d only serves (config.dedicated)", function, rank_);
    return *client_;
}

Client& Node::client(const char* function, std::size_t key) {
    if (key >= table_.keys.size())
        fail(tuttiInvalidArgument, "%s: key is %zu; there are %zu", function, key, table_.keys.size());
    return client(function);
}

void Node::serve() {
    if (!server_) fail(tuttiInvalidUsage, "tuttiPsServe: rank %d does not serve", rank_);
    if (client_)
        fail(tuttiInvalidUsage,
             "tuttiPsServe: rank %d works, too, and would wait for itself: tuttiPsDestroy waits until all have left",
             rank_);
    server_->wait();
}

void Node::leave() {
    std::optional<Error> first;
    if (client_) keep_first(first, [&] { client_->leave(); });
    client_.reset();
    if (server_) keep_first(first, [&] { server_->wait(); });
    if (first) throw *first;
}

void Node::stop_working(std::span<const int> ranks) {
    if (client_) guarded([&] { client_->leave(ranks); });
}

void Node::stop_serving() {
    if (server_) server_->stop();
}

void Node::abort() {
    const Failure why{tuttiRemoteError, text("rank %d has called tuttiPsAbort", rank_)};
    if (client_) client_->abort(why);
    if (server_) server_->abort(why);
}

tuttiPsStatistics_t Node::statistics() const {
    tuttiPsStatistics_t all = TUTTI_PS_STATISTICS_INITIALIZER;
    if (client_) client_->add_to(all);
    if (server_) server_->add_to(all);
    return all;
}

}  // namespace tutti::dp::ps
