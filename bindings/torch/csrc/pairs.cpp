#include "pairs.hpp"

#include <algorithm>
#include <climits>
#include <cstring>

namespace tutti_torch {
namespace {

// How long a group that is destroyed waits for its sends to be received.
constexpr Milliseconds kGrace{10'000};

/// Calls pass(first byte, bytes) for each piece of a message.
template <typename Pass>
void in_pieces(std::size_t bytes, const Pass& pass) {
    for (std::size_t at = 0; at < bytes; at += kPieceBytes) pass(at, std::min(kPieceBytes, bytes - at));
}

}  // namespace

// -------------------------------------------------------------------------------------------------------------- sender

Sender::Sender(Rendezvous meeting) : meeting_(std::move(meeting)), queue_(std::make_shared<Queue>("tutti-send")) {}

Sender::~Sender() {
    close(true);
}

void Sender::send(const WorkPtr& work, const at::Tensor& tensor, int tag) {
    if (tensor.nbytes() > kEagerBytes) {
        queue_->push(work, [this, tensor, tag] { deliver(tensor, tag); });
        return;
    }
    const at::Tensor copy = tensor.detach().clone(at::MemoryFormat::Contiguous);
    auto delivery = c10::make_intrusive<Work>(0, Operation{c10d::OpType::SEND, nullptr, {}, {}, meeting_.timeout});
    queue_->push(delivery, [this, copy, tag] { deliver(copy, tag); });
    work->complete();
}

void Sender::deliver(const at::Tensor& tensor, int tag) {
    const auto stop = [this] { return stopping_.load(); };
    if (!comm_) {
        // Both wait for each other in the store, which can be given up; the communicator is made when both are there.
        await_key(*meeting_.store, meeting_.key + "/receiver", meeting_.timeout, stop);
        const tuttiUniqueId id = meet(*meeting_.store, meeting_.key + "/id", true, meeting_.timeout, stop);
        auto comm = std::make_unique<Communicator>(id, 0, 2, meeting_.timeout, meeting_.timeout, meeting_.settings);
        const std::lock_guard<std::mutex> lock(making_);
        comm_ = std::move(comm);
    }
    const Packed data(tensor, Access::read, spare_);
    const Header header{tag, data.bytes()};
    must(tuttiSend(&header, sizeof header, tuttiUint8, 1, comm_->get(), nullptr), meeting_.what.c_str());
    in_pieces(data.bytes(), [&](std::size_t at, std::size_t bytes) {
        const auto* const from = static_cast<const char*>(data.data()) + at;
        must(tuttiSend(from, bytes, tuttiUint8, 1, comm_->get(), nullptr), meeting_.what.c_str());
    });
}

void Sender::close(bool abandon) {
    if (!abandon) queue_->drain(std::min(kGrace, meeting_.timeout));
    stopping_ = true;
    {
        const std::lock_guard<std::mutex> lock(making_);
        if (comm_ && !queue_->idle()) comm_->revoke();
    }
    queue_->close();
    comm_.reset();
}

// ------------------------------------------------------------------------------------------------------------ receiver

void Wanted::comes(Communicator* over) {
    const std::lock_guard<std::mutex> lock(mutex_);
    over_ = over;
    moved_ = std::chrono::steady_clock::now();
}

Milliseconds Wanted::end_if_stalled(Milliseconds limit) {
    constexpr Milliseconds soon{10};  // it has come, or has just been ended
    const std::lock_guard<std::mutex> lock(mutex_);
    if (over_ == nullptr) return soon;
    const auto since = std::chrono::duration_cast<Milliseconds>(std::chrono::steady_clock::now() - moved_);
    if (since < limit) return limit - since;
    stalled_ = true;
    over_->revoke();  // or the rest might still be written to the tensor
    over_ = nullptr;
    return soon;
}

Receiver::Receiver(Rendezvous meeting, int peer)
    : meeting_(std::move(meeting)), peer_(peer), thread_(start_thread("tutti-recv", [this] { loop(); })) {}

Receiver::~Receiver() {
    close();
}

void Receiver::close() {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        stopping_ = true;
        if (comm_) comm_->revoke();
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
    comm_.reset();
}

void Receiver::want(const WantedPtr& wanted) {
    std::unique_lock<std::mutex> lock(mutex_);
    for (auto kept = kept_.begin(); kept != kept_.end(); ++kept) {
        if (kept->tag != wanted->tag) continue;
        if (!wanted->take()) return;
        const std::vector<char> data = std::move(kept->data);
        kept_.erase(kept);
        lock.unlock();
        serve(*wanted, data.data(), data.size());
        return;
    }
    if (failure_ || stopping_) {
        const std::exception_ptr failure = failure_;
        lock.unlock();
        if (--wanted->receivers == 0 && wanted->take())
            wanted->work->complete(failure ? failure
                                           : std::make_exception_ptr(std::runtime_error("tutti: the group is closed")));
        return;
    }
    std::list<WantedPtr> given_up;  // with their tensors, which end without the lock
    for (auto each = wanted_.begin(); each != wanted_.end();) {
        const auto one = each++;
        if ((*one)->taken) given_up.splice(given_up.end(), wanted_, one);
    }
    wanted_.push_back(wanted);
    lock.unlock();
    changed_.notify_all();
}

void Receiver::serve(Wanted& wanted, const void* data, std::size_t bytes) {
    std::exception_ptr error;
    try {
        if (bytes != wanted.tensor.nbytes())
            fail(c10::str("tutti: recv: rank ", peer_, " has sent ", bytes, " bytes with tag ", wanted.tag,
                          ", and the tensor has ", wanted.tensor.nbytes()));
        const at::NoGradGuard values_only;
        if (bytes > 0) {
            const at::Tensor block = at::from_blob(const_cast<void*>(data), wanted.tensor.sizes(),
                                                   wanted.tensor.options().requires_grad(false));
            wanted.tensor.copy_(block);
        }
    } catch (...) {
        error = std::current_exception();
    }
    wanted.work->source = peer_;
    wanted.work->complete(error);
}

void Receiver::connect() {
    const auto stop = [this] { return stopping_.load(); };
    const std::string here = "here";
    meeting_.store->set(meeting_.key + "/receiver", std::vector<std::uint8_t>(here.begin(), here.end()));
    // The one who wants the message waits at most as long as the group allows; the look-out goes on.
    const Milliseconds for_ever(INT_MAX);
    const tuttiUniqueId id = meet(*meeting_.store, meeting_.key + "/id", false, for_ever, stop);
    auto comm = std::make_unique<Communicator>(id, 1, 2, meeting_.timeout, for_ever, meeting_.settings);
    const std::lock_guard<std::mutex> lock(mutex_);
    comm_ = std::move(comm);
    if (stopping_) comm_->revoke();
}

WantedPtr Receiver::match(std::int64_t tag) {
    for (auto each = wanted_.begin(); each != wanted_.end();) {
        const WantedPtr wanted = *each;
        if (wanted->taken) {
            each = wanted_.erase(each);
        } else if (wanted->tag == tag && wanted->take()) {
            wanted_.erase(each);
            return wanted;
        } else {
            ++each;
        }
    }
    return nullptr;
}

/// whose: what waits for the data; nullptr if nobody does.
void Receiver::take_data(void* to, std::size_t bytes, Wanted* whose) {
    in_pieces(bytes, [&](std::size_t at, std::size_t part) {
        auto* const into = static_cast<char*>(to) + at;
        must(tuttiRecv(into, part, tuttiUint8, 0, comm_->get(), nullptr), meeting_.what.c_str());
        if (whose != nullptr) whose->comes(comm_.get());
    });
}

void Receiver::take_one() {
    Header header;
    must(tuttiRecv(&header, sizeof header, tuttiUint8, 0, comm_->get(), nullptr), meeting_.what.c_str());
    std::unique_lock<std::mutex> lock(mutex_);
    const WantedPtr wanted = match(header.tag);
    if (!wanted) {
        lock.unlock();
        Kept kept{header.tag, std::vector<char>(header.bytes)};
        take_data(kept.data.data(), header.bytes, nullptr);
        lock.lock();
        // Somebody may have asked for it meanwhile.
        if (const WantedPtr late = match(header.tag)) {
            lock.unlock();
            serve(*late, kept.data.data(), kept.data.size());
        } else {
            kept_.push_back(std::move(kept));
        }
        return;
    }
    lock.unlock();
    std::vector<char> misfit;
    void* target = wanted->tensor.data_ptr();
    try {
        if (header.bytes != wanted->tensor.nbytes() || !wanted->tensor.is_contiguous()) {
            misfit.resize(header.bytes);
            target = misfit.data();
        }
        wanted->comes(comm_.get());
        take_data(target, header.bytes, wanted.get());
        wanted->comes(nullptr);
    } catch (...) {
        wanted->comes(nullptr);
        std::exception_ptr error = std::current_exception();
        if (wanted->stalled())
            error = std::make_exception_ptr(std::runtime_error(c10::str(
                "tutti: recv: its timeout has passed: rank ", peer_, " has begun to send a message of ", header.bytes,
                " bytes with tag ", header.tag, ", and nothing more has come for ", meeting_.timeout.count(),
                " ms. Look for what stops that rank. Nothing can be received from it any more: make a new group")));
        wanted->work->complete(error);
        std::rethrow_exception(error);
    }
    if (target == misfit.data() && header.bytes > 0) {
        serve(*wanted, misfit.data(), misfit.size());
    } else {
        wanted->work->source = peer_;
        wanted->work->complete();
    }
}

void Receiver::fail_all(std::exception_ptr error) {
    std::list<WantedPtr> all;
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        failure_ = error;
        all.swap(wanted_);
    }
    for (const WantedPtr& wanted : all)
        if (--wanted->receivers == 0 && wanted->take()) wanted->work->complete(error);
}

void Receiver::loop() {
    try {
        for (;;) {
            {
                std::unique_lock<std::mutex> lock(mutex_);
                changed_.wait(lock, [this] {
                    while (!wanted_.empty() && wanted_.front()->taken) wanted_.pop_front();
                    return stopping_ || !wanted_.empty();
                });
                if (stopping_) break;
            }
            if (!comm_) connect();
            take_one();
        }
        fail("tutti: the process group is closed");
    } catch (...) {
        fail_all(std::current_exception());
    }
}

// --------------------------------------------------------------------------------------------------------------- pairs

Pairs::Pairs(c10::intrusive_ptr<c10d::Store> store, std::string key, int rank, int size, Milliseconds timeout,
             Settings settings, std::shared_ptr<const Hooks> hooks)
    : store_(std::move(store)),
      key_(std::move(key)),
      rank_(rank),
      size_(size),
      timeout_(timeout),
      settings_(std::move(settings)),
      hooks_(std::move(hooks)) {}

Operation Pairs::operation(c10d::OpType type, const char* name, const at::Tensor& tensor) const {
    return {type, name, tensor, tensor, timeout_, false, hooks_->any() ? hooks_ : nullptr};
}

Pairs::~Pairs() {
    close(true);
}

Rendezvous Pairs::meeting(int from, int to, const char* what) const {
    const std::string ranks = c10::str(": from rank ", from, " to rank ", to, ", which are ranks 0 and 1 here");
    return {store_, c10::str(key_, "/", from, ">", to), what + ranks, timeout_, settings_};
}

void Pairs::check_open() const {
    if (closed_) fail("tutti: the process group is closed");
}

Sender& Pairs::sender(int peer) {
    const std::lock_guard<std::mutex> lock(mutex_);
    check_open();
    std::unique_ptr<Sender>& sender = senders_[peer];
    if (!sender) sender = std::make_unique<Sender>(meeting(rank_, peer, "send"));
    return *sender;
}

Receiver& Pairs::receiver(int peer) {
    const std::lock_guard<std::mutex> lock(mutex_);
    check_open();
    std::unique_ptr<Receiver>& receiver = receivers_[peer];
    if (!receiver) receiver = std::make_unique<Receiver>(meeting(peer, rank_, "recv"), peer);
    return *receiver;
}

WorkPtr Pairs::send(const at::Tensor& tensor, int peer, int tag) {
    if (peer == rank_) fail(c10::str("tutti: send: rank ", rank_, " can't send to itself"));
    auto work = c10::make_intrusive<Work>(rank_, operation(c10d::OpType::SEND, "tutti:send", tensor));
    sender(peer).send(work, tensor, tag);
    return work;
}

WantedPtr Pairs::want(const at::Tensor& tensor, int tag, c10d::OpType type, const std::string& from) {
    auto wanted = std::make_shared<Wanted>();
    wanted->tensor = tensor;
    wanted->tag = tag;
    wanted->work = c10::make_intrusive<Work>(rank_, operation(type, "tutti:recv", tensor));
    // Who gives up takes the receive back, so that nobody writes to the tensor later. (The Work knows the receive by a
    // weak pointer: the receive owns the Work.)
    // A message whose header has come can't be taken back: it may take its time, as long as more of it comes.
    wanted->work->on_timeout = [weak = std::weak_ptr<Wanted>(wanted), tag, from, limit = timeout_] {
        const WantedPtr mine = weak.lock();
        if (!mine) return limit;  // it ends
        if (!mine->take()) return mine->end_if_stalled(limit);
        mine->work->complete(std::make_exception_ptr(
            std::runtime_error(c10::str("tutti: recv: no message with tag ", tag, " from ", from, " in time"))));
        return limit;
    };
    return wanted;
}

WorkPtr Pairs::recv(const at::Tensor& tensor, int peer, int tag) {
    if (peer == rank_) fail(c10::str("tutti: recv: rank ", rank_, " can't receive from itself"));
    const WantedPtr wanted = want(tensor, tag, c10d::OpType::RECV, c10::str("rank ", peer));
    receiver(peer).want(wanted);
    return wanted->work;
}

WorkPtr Pairs::recv_any(const at::Tensor& tensor, int tag) {
    if (size_ == 1) fail("tutti: recv: there is no other rank");
    const WantedPtr wanted = want(tensor, tag, c10d::OpType::RECVANYSOURCE, "any rank");
    wanted->receivers = size_ - 1;
    for (int peer = 0; peer < size_ && !wanted->taken; ++peer)
        if (peer != rank_) receiver(peer).want(wanted);
    return wanted->work;
}

void Pairs::close(bool abandon) {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        closed_ = true;
    }
    for (auto& [peer, sender] : senders_) sender->close(abandon);
    for (auto& [peer, receiver] : receivers_) receiver->close();
}

}  // namespace tutti_torch
