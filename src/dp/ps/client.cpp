#include "dp/ps/client.hpp"

#include <algorithm>
#include <chrono>

namespace tutti::dp::ps {
namespace {

/// Needs no memory: so few letters are in the string itself.
Failure no_memory() {
    return {tuttiSystemError, "out of memory"};
}

Error unexpected(const Header& header, const char* why) {
    return {tuttiInternalError,
            text("its answer of kind %d for part %u %s", static_cast<int>(header.kind), header.part, why)};
}

}  // namespace

Client::Client(const Settings& settings, const Table& table, std::vector<Link> links, int device, BackendPtr callers)
    : settings_(settings),
      table_(table),
      callers_(std::move(callers)),
      pushes_(table.keys.size()),
      rate_(settings.optimizer.learningRate) {
    for (Link& link : links) servers_.push_back(std::make_unique<Server>(std::move(link)));
    if (!callers_) return;
    std::size_t most = 0;
    for (const PartPlace& place : table.parts) most = std::max({most, place.bytes(), place.push_bytes()});
    const BackendPtr pinned = pinned_host();
    for (const auto& s : servers_)
        for (auto* const carrier : {&s->up, &s->down}) *carrier = std::make_unique<Carrier>(device, pinned, most);
}

void Client::start() {
    for (const auto& s : servers_) {
        s->sender = start_thread("tutti-ps-push", [this, &s = *s] { send_letters(s); });
        s->receiver = start_thread("tutti-ps-pull", [this, &s = *s] { receive_answers(s); });
    }
}

Client::~Client() {
    shielded("the end of a worker", [&] { abort({tuttiRemoteError, "the worker has been destroyed"}); });
    for (const auto& s : servers_)
        for (Thread* thread : {&s->sender, &s->receiver})
            if (thread->joinable()) thread->join();
}

std::string Client::name_of(const Server& s) const {
    return text("the server on rank %d", settings_.server_ranks[static_cast<std::size_t>(s.link.server)]);
}

Failure Client::lost(const Server& s, const char* words) const {
    return {tuttiRemoteError, text("%s has failed, died or left: %s", name_of(s).c_str(), words)};
}

// ---------------------------------------------------------------------------------------------------------- requests

/// Throws if this request can't be made now. Hold mutex_.
void Client::check(const char* function, std::size_t key, bool pushes) const {
    const Key& its = table_.keys[key];
    const Pushes& p = pushes_[key];
    if (leaving_) tutti::fail(tuttiInvalidUsage, "%s: this worker has left", function);
    if (settings_.only_sums() && !pushes && p.made == 0)
        tutti::fail(tuttiInvalidUsage,
                    "%s: key '%s' has not been pushed by this worker: servers only sum, and a pull is for the sum that "
                    "the last push is in",
                    function, its.name.c_str());
    if (settings_.only_sums() && pushes && p.made - p.summed >= settings_.pushesAhead)
        tutti::fail(tuttiInvalidUsage,
                    "%s: this worker has pushed key '%s' %lld times since the last sum of it that it got; "
                    "config.pushesAhead is %d: pull the key, and wait for that, before you push it again",
                    function, its.name.c_str(), p.made - p.summed, settings_.pushesAhead);
    for (const std::size_t part : its.parts)
        if (const auto& s = servers_[static_cast<std::size_t>(table_.parts[part].server)]; s->failure)
            throw Error(s->failure->code,
                        text("%s: key '%s': %s", function, its.name.c_str(), s->failure->words.c_str()));
}

tuttiPsRequest_t Client::request(const char* function, std::size_t key, const void* gradient, void* values,
                                 double unscale) {
    using Kind = Header::Kind;
    const Kind kind = gradient == nullptr ? Kind::pull : values == nullptr ? Kind::push : Kind::push_pull;
    return begin(function, key, kind, static_cast<const std::byte*>(gradient), static_cast<std::byte*>(values),
                 unscale);
}

tuttiPsRequest_t Client::fetch(const char* function, std::size_t key, std::byte* snapshots) {
    return begin(function, key, Header::Kind::fetch, nullptr, snapshots, 1);
}

tuttiPsRequest_t Client::store(const char* function, std::size_t key, const std::byte* snapshots) {
    return begin(function, key, Header::Kind::store, snapshots, nullptr, 1);
}

std::size_t Client::snapshot_bytes(std::size_t key) const {
    std::size_t bytes = 0;
    for (const std::size_t part : table_.keys[key].parts) bytes += Snapshot(settings_, table_.parts[part]).bytes;
    return bytes;
}

/// The offset in bytes of a part in its key's values; snapshot: in the key's Snapshots.
std::size_t Client::place_of(std::size_t part, bool snapshot) const {
    const PartPlace& place = table_.parts[part];
    if (!snapshot) return place.first * size_of(place.type);
    std::size_t at = 0;
    for (const std::size_t before : table_.keys[place.key].parts) {
        if (before == part) break;
        at += Snapshot(settings_, table_.parts[before]).bytes;
    }
    return at;
}

/// The point of config.stream after which a request may use the caller's memory; nullptr if that is the host's.
Backend::Mark Client::mark_for(const char* function, const void* memory) const {
    if (memory == nullptr || !is_on_gpu(memory)) return nullptr;
    if (!callers_)
        tutti::fail(tuttiInvalidArgument, "%s: the buffer at %p is in the memory of a GPU, but rank %d is on a CPU",
                    function, memory, settings_.worker_ranks[static_cast<std::size_t>(servers_[0]->link.worker)]);
    refuse_capture(function, callers_->stream());
    return callers_->mark();
}

tuttiPsRequest_t Client::begin(const char* function, std::size_t key, Header::Kind kind, const std::byte* data,
                               std::byte* values, double unscale) {
    using Kind = Header::Kind;
    const bool pushes = kind == Kind::push || kind == Kind::push_pull, answered = kind != Kind::push;
    const Backend::Mark read_after = mark_for(function, data), written_after = mark_for(function, values);
    std::lock_guard lock(mutex_);
    check(function, key, pushes);
    Request& request = requests_[++last_];
    request.key = key;
    request.kind = kind;
    request.values = values;
    request.after = written_after;
    request.round = pushes_[key].made + pushes;
    try {
        for (const std::size_t part : table_.keys[key].parts) {
            const PartPlace& place = table_.parts[part];
            Server& s = server_of(place);
            Letter letter{Header{kind}};
            letter.header.part = static_cast<std::uint32_t>(part);
            letter.header.ticket = last_;
            letter.header.rate = rate_;
            letter.header.unscale = unscale;
            if (data != nullptr) {
                letter.data = data + (pushes ? place.first * size_of(place.push_type) : place_of(part, true));
                letter.bytes = pushes ? place.push_bytes() : Snapshot(settings_, place).bytes;
                letter.after = read_after;
                s.sending.emplace(last_, part);
            }
            if (answered) s.awaited.emplace(last_, part);
            request.left += static_cast<std::size_t>(data != nullptr) + static_cast<std::size_t>(answered);
            s.letters.push_back(letter);
            s.mail.notify_one();
        }
    } catch (...) {  // no memory: nothing of this request is left, and no server hears of it
        for (const auto& s : servers_) {
            const auto its = [&](const auto& one) { return one.first == last_; };
            std::erase_if(s->letters, [&](const Letter& one) { return one.header.ticket == last_; });
            std::erase_if(s->sending, its);
            std::erase_if(s->awaited, its);
        }
        requests_.erase(last_);
        throw;
    }
    pushes_[key].made += pushes;
    return last_;
}

void Client::wait(tuttiPsRequest_t number) {
    std::unique_lock lock(mutex_);
    const auto found = requests_.find(number);
    if (found == requests_.end())
        tutti::fail(tuttiInvalidArgument, "tuttiPsWait: request %llu is none, or has been waited for before",
                    static_cast<unsigned long long>(number));
    Request& request = found->second;
    const auto limit = patience();
    const auto done = [&] { return request.left == 0; };
    if (!ended_.wait_for(lock, limit, done)) {
        for (const auto& s : servers_) {
            const auto its = [&](const auto& one) { return one.first == number; };
            if (std::ranges::none_of(s->sending, its) && std::ranges::none_of(s->awaited, its)) continue;
            lock.unlock();
            fail(*s, lost(*s, text("no answer for %d ms", static_cast<int>(limit.count())).c_str()));
            lock.lock();
        }
        ended_.wait(lock, done);  // ends soon, because the links of its servers have been aborted
    }
    const std::optional<Failure> error = request.error;
    const std::string key = table_.keys[request.key].name;
    requests_.erase(found);
    if (error) throw Error(error->code, text("tuttiPsWait: key '%s': %s", key.c_str(), error->words.c_str()));
}

void Client::clock() {
    std::lock_guard lock(mutex_);
    if (leaving_) tutti::fail(tuttiInvalidUsage, "tuttiPsClock: this worker has left");
    std::size_t told = 0;
    try {
        for (; told < servers_.size() && !settings_.only_sums(); ++told)
            if (Server& s = *servers_[told]; !s.failure) s.letters.push_back({Header{Header::Kind::clock}});
    } catch (...) {  // no memory: no server hears of it
        while (told > 0)
            if (Server& s = *servers_[--told]; !s.failure) s.letters.pop_back();
        throw;
    }
    ++statistics_.clock;
    for (const auto& s : servers_) s->mail.notify_one();
}

void Client::set_learning_rate(double rate) {
    std::lock_guard lock(mutex_);
    rate_ = rate;
}

void Client::wait_while_all_serve(tuttiPsRequest_t number) {
    std::unique_lock lock(mutex_);
    Request& request = requests_.at(number);
    const auto lost_part = [&] {
        return std::ranges::find_if(table_.parts, [&](const auto& p) { return server_of(p).failure.has_value(); });
    };
    ended_.wait_for(lock, patience(), [&] { return request.left == 0 || lost_part() != table_.parts.end(); });
    const auto part = lost_part();
    if (request.left == 0 || part == table_.parts.end()) {
        lock.unlock();
        return wait(number);
    }
    request.withdrawn = true;
    ended_.wait(lock, [&] { return request.arriving == 0; });
    const Failure& failure = *server_of(*part).failure;
    throw Error(failure.code, text("key '%s': %s", table_.keys[part->key].name.c_str(), failure.words.c_str()));
}

/// Notes that a send or an answer of a request has ended. Hold mutex_.
void Client::end(std::uint64_t number, const std::optional<Failure>& error) {
    Request& request = requests_.at(number);
    try {
        if (error && !request.error) request.error = error;
    } catch (const std::bad_alloc&) {
        request.error = no_memory();
    }
    if (--request.left > 0) return;
    Pushes& its = pushes_[request.key];
    if (request.values != nullptr && !request.error) its.summed = std::max(its.summed, request.round);
    ended_.notify_all();
}

void Client::leave() {
    std::optional<Error> first;
    std::unique_lock lock(mutex_);
    leaving_ = true;
    std::vector<std::pair<std::uint64_t, bool>> open;
    for (const auto& [number, request] : requests_) open.emplace_back(number, request.withdrawn);
    lock.unlock();
    std::optional<Error> unheard;
    for (const auto& [number, withdrawn] : open)
        keep_first(withdrawn ? unheard : first, [&, number = number] { wait(number); });
    lock.lock();
    for (const auto& s : servers_) {
        if (s->failure) continue;
        s->letters.push_back({Header{Header::Kind::leave}});
        s->mail.notify_one();
    }
    const auto closed = [&] {
        return std::ranges::all_of(servers_, [](const auto& s) { return s->closed || s->failure; });
    };
    if (!ended_.wait_for(lock, std::chrono::milliseconds(settings_.timeoutMs), closed) && !first)
        first = Error(tuttiTimeout, "tuttiPsDestroy: a server has not said good-bye");
    for (const auto& s : servers_)
        if (s->failure && !first) first = s->failure->error();
    lock.unlock();
    if (first) throw *first;
}

void Client::leave(std::span<const int> ranks) {
    for (const auto& s : servers_) {
        const int rank = settings_.server_ranks[static_cast<std::size_t>(s->link.server)];
        if (std::ranges::find(ranks, rank) == ranks.end()) fail(*s, lost(*s, "it is not among the ranks that go on"));
    }
    leave();
}

// ------------------------------------------------------------------------------------------------------------ threads

void Client::send_letters(Server& s) {
    const auto pause = std::chrono::milliseconds(std::max(1, settings_.timeoutMs / 8));
    std::unique_lock lock(mutex_);
    for (;;) {
        if (s.failure || s.closed) break;
        s.mail.wait_for(lock, pause, [&] { return !s.letters.empty() || s.failure; });
        if (s.failure) break;
        const bool quiet = s.letters.empty();
        const Letter letter = quiet ? Letter{Header{Header::Kind::beat}} : s.letters.front();
        if (!quiet) s.letters.pop_front();
        lock.unlock();
        bool sent = true;
        try {
            const std::byte* data = letter.data;
            if (letter.after) {
                s.up->fetch(data, letter.bytes, letter.after);
                data = s.up->room();
            }
            send(s.link.up, to_server, letter.header);
            if (data != nullptr) send(s.link.up, to_server, data, letter.bytes);
        } catch (...) {
            hang_up(s);
            sent = false;
        }
        lock.lock();
        if (!sent || letter.header.kind == Header::Kind::leave) break;
        if (letter.data == nullptr) continue;
        statistics_.pushes += letter.header.kind != Header::Kind::store;
        s.sending.erase({letter.header.ticket, letter.header.part});
        end(letter.header.ticket, std::nullopt);
    }
    for (const auto& one : s.sending) end(one.first, s.failure);
    s.sending.clear();
}

/// Ends the link with the exception that is being handled, for whose words there may be no memory. Call in a catch
/// block.
void Client::hang_up(Server& s) {
    const Error why = caught();
    try {
        fail(s, lost(s, why.what()));
    } catch (const std::bad_alloc&) {
        fail(s, no_memory());
    }
}

void Client::receive_answers(Server& s) {
    try {
        while (take(s, receive<Header>(s.link.down, to_server))) {
        }
    } catch (...) {
        hang_up(s);
    }
    std::lock_guard lock(mutex_);
    s.closed = true;
    for (const auto& one : s.awaited) end(one.first, s.failure);
    s.awaited.clear();
    ended_.notify_all();
}

/// Receives the text of a refusal or failure, and returns it with the header's code.
Failure Client::said_by(Server& s, const Header& header) {
    Text why = receive<Text>(s.link.down, to_server);
    why.words[sizeof why.words - 1] = 0;
    const bool known = header.code > tuttiSuccess && header.code < tuttiNumResults;
    return {known ? static_cast<tuttiResult_t>(header.code) : tuttiInternalError, why.words};
}

/// Handles one message of a server. Returns false if it was the last one. Checks everything that the server says: it
/// may run another version, or be faulty.
bool Client::take(Server& s, const Header& header) {
    using Kind = Header::Kind;
    if (header.kind == Kind::beat) return true;
    if (header.kind == Kind::failure) throw said_by(s, header).error();
    Request asked;
    {
        std::lock_guard lock(mutex_);
        if (header.kind == Kind::bye) {
            if (!leaving_ || !s.awaited.empty()) throw unexpected(header, "comes too early");
            return false;
        }
        if (!s.awaited.contains({header.ticket, header.part})) throw unexpected(header, "is one that nobody waits for");
        Request& request = requests_.at(header.ticket);
        asked = request;
        ++request.arriving;
    }
    std::optional<Failure> error;
    try {
        error = receive_answer(s, header, asked);
    } catch (...) {
        std::lock_guard lock(mutex_);
        --requests_.at(header.ticket).arriving;  // hang_up() tells who waits
        throw;
    }
    std::lock_guard lock(mutex_);
    --requests_.at(header.ticket).arriving;
    if (!error && header.kind == Kind::values) {
        ++statistics_.pulls;
        statistics_.largestPullStaleness = std::max(statistics_.largestPullStaleness, static_cast<int>(header.number));
        ++statistics_.pullStaleness[std::min<long long>(header.number, TUTTI_PS_BINS - 1)];
    }
    s.awaited.erase({header.ticket, header.part});
    end(header.ticket, error);
    return true;
}

/// Receives what follows the header. Returns the server's refusal, if it is one.
std::optional<Failure> Client::receive_answer(Server& s, const Header& header, const Request& asked) {
    using Kind = Header::Kind;
    if (header.kind == Kind::refusal) {
        const Failure why = said_by(s, header);
        return Failure{why.code, name_of(s) + ": " + why.words};
    }
    const Kind answer = asked.kind == Kind::fetch   ? Kind::snapshot
                        : asked.kind == Kind::store ? Kind::stored
                                                    : Kind::values;
    if (header.kind != answer) throw unexpected(header, "is none");
    if (header.number < 0) throw unexpected(header, "has a staleness below 0");
    if (answer == Kind::stored) return std::nullopt;
    const PartPlace& place = table_.parts[header.part];
    const bool whole = answer == Kind::snapshot;
    const std::size_t bytes = whole ? Snapshot(settings_, place).bytes : place.bytes();
    std::vector<std::byte> dropped(asked.withdrawn ? bytes : 0);
    std::byte* const at = asked.withdrawn ? dropped.data() : asked.values + place_of(header.part, whole);
    const bool stores = asked.after && !asked.withdrawn;
    receive(s.link.down, to_server, stores ? s.down->room() : at, bytes);
    if (stores) s.down->store(at, bytes, asked.after);
    return std::nullopt;
}

/// Aborts the link to a server. Its sender and receiver threads end the requests that were under way, when they do not
/// use the callers' buffers any more.
void Client::fail(Server& s, Failure failure) {
    {
        std::lock_guard lock(mutex_);
        if (!s.failure && !s.closed) s.failure = std::move(failure);
    }
    s.mail.notify_all();
    ended_.notify_all();
    s.link.abort();
}

void Client::abort(const Failure& why) {
    for (const auto& s : servers_) {
        bool over;
        {
            std::lock_guard lock(mutex_);
            over = s->closed && !s->failure;
        }
        if (!over) fail(*s, why);
    }
}

void Client::add_to(tuttiPsStatistics_t& s) const {
    std::lock_guard lock(mutex_);
    s.clock = statistics_.clock;
    s.pushes = statistics_.pushes;
    s.pulls = statistics_.pulls;
    s.largestPullStaleness = statistics_.largestPullStaleness;
    std::copy_n(statistics_.pullStaleness, TUTTI_PS_BINS, s.pullStaleness);
}

}  // namespace tutti::dp::ps
