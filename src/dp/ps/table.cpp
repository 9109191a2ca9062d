#include "dp/ps/table.hpp"

#include <algorithm>
#include <climits>
#include <cstring>
#include <numeric>
#include <set>

#include "base/cores.hpp"
#include "base/result.hpp"
#include "dp/optimizer.hpp"
#include "dp/options.hpp"
#include "dp/sized.hpp"

namespace tutti::dp::ps {
namespace {

constexpr const char* create_servers = "tuttiPsCreate";

int number_in(const std::vector<int>& all, int rank) {
    const auto found = std::ranges::find(all, rank);
    return found == all.end() ? -1 : static_cast<int>(found - all.begin());
}

void check_update(const tuttiDpOptimizer_t& o) {
    if (o.kind == tuttiDpLamb || o.kind == tuttiDpMuon)
        fail(tuttiInvalidArgument, "%s: %s needs whole parameters, which servers have not", create_servers,
             o.kind == tuttiDpLamb ? "tuttiDpLamb" : "tuttiDpMuon");
    check_kind(create_servers, o);
    if (!(o.learningRate >= 0))
        fail(tuttiInvalidArgument, "%s: config.optimizer.learningRate is %g", create_servers, o.learningRate);
}

void choose_roles(Settings& s, int ranks) {
    if (s.serverRanks == nullptr) {
        s.server_ranks.resize(static_cast<std::size_t>(s.servers));
        std::iota(s.server_ranks.begin(), s.server_ranks.end(), 0);
    } else {
        s.server_ranks.assign(s.serverRanks, s.serverRanks + s.servers);
    }
    std::set<int> different;
    for (const int rank : s.server_ranks)
        if (rank < 0 || rank >= ranks || !different.insert(rank).second)
            fail(tuttiInvalidArgument, "%s: config.serverRanks has %d, which is %s", create_servers, rank,
                 rank < 0 || rank >= ranks ? "no rank" : "there twice");
    for (int rank = 0; rank < ranks; ++rank)
        if (!s.dedicated || !different.contains(rank)) s.worker_ranks.push_back(rank);
    if (s.worker_ranks.empty())
        fail(tuttiInvalidArgument, "%s: with config.dedicated, all %d ranks would serve and none would work",
             create_servers, ranks);
}

}  // namespace

int Settings::server_of(int rank) const {
    return number_in(server_ranks, rank);
}

int Settings::worker_of(int rank) const {
    return number_in(worker_ranks, rank);
}

std::string Settings::describe() const {
    std::string all = text(
        "dedicated %d, average %d, staleness %d, %d pushes ahead, parts of %zu bytes, optimizer %d (%g, %g, %g, %g, "
        "%g, %g), servers on ranks",
        dedicated, average, staleness, pushesAhead, partBytes, optimizer.kind, optimizer.learningRate,
        optimizer.momentum, optimizer.beta1, optimizer.beta2, optimizer.epsilon, optimizer.weightDecay);
    for (const int rank : server_ranks) all += text(" %d", rank);
    return all;
}

std::string Key::describe() const {
    return text("'%s' (%s[%zu])", name.c_str(), std::string(name_of(type)).c_str(), count);
}

Settings read_settings(const tuttiPsConfig_t* config, int ranks) {
    Settings s{known_part(create_servers, config, TUTTI_PS_CONFIG_INITIALIZER, offsetof(tuttiPsConfig_t, servers),
                          "TUTTI_PS_CONFIG_INITIALIZER"),
               {},
               {}};
    for (int* const field : {&s.servers, &s.threads, &s.timeoutMs, &s.pushesAhead})
        if (*field == 0) *field = TUTTI_UNDEF_INT;
    const int cores = std::clamp(static_cast<int>(cores_of_caller().size()), 1, 8);
    const Field fields[] = {{"servers", s.servers, ranks, 1, ranks},
                            {"dedicated", s.dedicated, 0, 0, 1},
                            {"average", s.average, 0, 0, 1},
                            {"staleness", s.staleness, TUTTI_PS_UNBOUNDED, TUTTI_PS_UNBOUNDED, INT_MAX},
                            {"threads", s.threads, cores, 1, 256},
                            {"timeoutMs", s.timeoutMs, 600000, 1, INT_MAX},
                            {"pushesAhead", s.pushesAhead, 16, 1, INT_MAX}};
    fill_fields(create_servers, fields);
    if (s.partBytes == 0) s.partBytes = std::size_t{4} << 20;
    check_update(s.optimizer);
    if (s.only_sums() && s.bounded())
        fail(tuttiInvalidArgument,
             "%s: config.staleness is %d, but servers that only sum (config.optimizer.kind tuttiDpNoOptimizer) have no "
             "clocks: a pull waits for the sum of its round",
             create_servers, s.staleness);
    if (!s.only_sums() && s.average)
        fail(tuttiInvalidArgument, "%s: config.average is for servers that only sum: here a gradient is applied alone",
             create_servers);
    choose_roles(s, ranks);
    s.serverRanks = nullptr;
    return s;
}

std::vector<Key> read_keys(const tuttiPsKey_t* keys, std::size_t count, const Settings& settings) {
    const std::size_t stride = settings.keySize;
    if (stride < offsetof(tuttiPsKey_t, initial) + sizeof keys->initial || stride % alignof(tuttiPsKey_t) != 0)
        fail(tuttiInvalidArgument, "%s: config.keySize is %zu; TUTTI_PS_CONFIG_INITIALIZER sets it", create_servers,
             stride);
    std::vector<Key> all;
    std::set<std::string> names;
    for (std::size_t i = 0; i < count; ++i) {
        tuttiPsKey_t g{};
        std::memcpy(&g, reinterpret_cast<const std::byte*>(keys) + i * stride, std::min(stride, sizeof g));
        if (g.name == nullptr) fail(tuttiInvalidArgument, "%s: the name of key %zu is NULL", create_servers, i);
        if (!names.insert(g.name).second)
            fail(tuttiInvalidArgument, "%s: key %zu has the name '%s', as one before it", create_servers, i, g.name);
        if (g.count == 0 || g.count > SIZE_MAX / 64)
            fail(tuttiInvalidArgument, "%s: key '%s' has a count of %zu", create_servers, g.name, g.count);
        if (g.type != tuttiFloat16 && g.type != tuttiBfloat16 && g.type != tuttiFloat32 && g.type != tuttiFloat64)
            fail(tuttiInvalidArgument, "%s: the type of key '%s' is %d; a float of 16, 32 or 64 bits was expected",
                 create_servers, g.name, static_cast<int>(g.type));
        if (g.type == tuttiFloat64 && settings.optimizer.kind == tuttiDpCallback)
            fail(tuttiInvalidArgument, "%s: key '%s' is of float64, but an update of yours (tuttiDpCallback) gets fp32",
                 create_servers, g.name);
        all.push_back(
            {g.name, g.count, static_cast<DataType>(g.type), g.initial, {}, i, 1.0, settings.optimizer.weightDecay});
    }
    return all;
}

Snapshot::Snapshot(const Settings& settings, const PartPlace& place) {
    const tuttiDpOptimizerKind_t kind = settings.optimizer.kind;
    arrays = static_cast<std::size_t>(states_of(kind) + has_master(kind, place.type));
    array_bytes = place.count * size_of(state_type(place.type));
    values_at = states_at + arrays * array_bytes;
    bytes = values_at + place.bytes();
}

Table deal(std::vector<Key> keys, std::size_t part_bytes, int servers) {
    constexpr std::size_t line = 64;
    Table table{std::move(keys), {}};
    for (std::size_t k = 0; k < table.keys.size(); ++k) {
        Key& key = table.keys[k];
        const std::size_t size = size_of(key.type), bytes = key.count * size, step = line / size;
        const std::size_t pieces = (bytes - 1) / part_bytes + 1;
        const std::size_t each = ((key.count + pieces - 1) / pieces + step - 1) / step * step;
        for (std::size_t first = 0; first < key.count; first += each) {
            key.parts.push_back(table.parts.size());
            table.parts.push_back({k, first, std::min(each, key.count - first), key.type, key.push_type, 0});
        }
    }
    std::vector<std::size_t> order(table.parts.size()), load(static_cast<std::size_t>(servers), 0);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, std::greater(), [&](std::size_t p) { return table.parts[p].bytes(); });
    for (const std::size_t p : order) {
        const auto least = std::ranges::min_element(load);
        table.parts[p].server = static_cast<int>(least - load.begin());
        *least += table.parts[p].bytes();
    }
    return table;
}

}  // namespace tutti::dp::ps
