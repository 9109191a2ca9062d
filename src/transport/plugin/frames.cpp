#include "transport/plugin/frames.hpp"

#include <cstring>
#include <list>
#include <mutex>

#include "base/caught.hpp"
#include "base/log.hpp"
#include "base/result.hpp"

namespace tutti::plugin {
namespace {

/// The connections of destroyed endpoints.
struct Kept {
    std::mutex mutex;                             // guards both lists
    std::list<std::unique_ptr<Frames>> parting;   // to be closed once nothing is under way
    std::list<std::unique_ptr<Frames>> hopeless;  // never closed: they failed with requests under way
};

Kept& kept() {
    static Kept* const instance = new Kept;  // never destroyed: nothing is closed at the process's exit
    return *instance;
}

}  // namespace

Frames::Frames(const Connector& connector, std::shared_ptr<void> lease)
    : lease_(std::move(lease)),
      memory_(Mapping::anonymous(2 * most * sizeof(Frame))),
      sent_(reinterpret_cast<Frame*>(memory_.base())),
      arrived_(sent_ + most),
      out_(connector, Requests::Way::out),
      in_(connector, Requests::Way::in) {}

bool Frames::open() {
    if (open_) return true;
    const bool one = out_.open(), other = in_.open();
    open_ = one && other;
    for (unsigned i = 0; open_ && i < most; ++i) expect(i);
    return open_;
}

/// Posts buffer `number` for another frame.
void Frames::expect(unsigned number) {
    in_.add(&arrived_[number], sizeof(Frame), in_.memory(arrived_, most * sizeof(Frame)));
}

void Frames::queue(const net::Header& header, const std::byte* body, bool along) {
    Frame& frame = sent_[next_out_++ % most];
    frame.head = header;
    const std::size_t bytes = along ? header.bytes : 0;
    TUTTI_ASSERT(bytes <= small);
    if (bytes > 0) std::memcpy(frame.body, body, bytes);
    out_.add(&frame, sizeof frame.head + bytes, out_.memory(sent_, most * sizeof(Frame)));
}

bool Frames::send() {
    bool moved = out_.move();
    for (std::size_t size; out_.take(size); moved = true) {
    }
    return moved;
}

const Frames::Frame* Frames::next(std::size_t& size) {
    in_.move();
    while (!is_here_ && in_.take(here_)) {
        is_here_ = here_ != 1;
        if (is_here_) break;
        peer_ended_ = true;
        ++next_in_;
    }
    size = here_;
    return is_here_ ? &arrived_[next_in_ % most] : nullptr;
}

void Frames::done() {
    is_here_ = false;
    const unsigned number = next_in_++ % most;
    if (!peer_ended_) expect(number);
}

void Frames::say_end() {
    if (std::exchange(ended_, true)) return;
    void* const memory = out_.memory(sent_, most * sizeof(Frame));
    for (unsigned i = 0; i < most; ++i) out_.add(sent_, 1, memory);
}

bool Frames::part() {
    say_end();
    send();
    for (std::size_t size; next(size) != nullptr;) done();
    return out_.count() == 0 && in_.count() == 0;
}

void Frames::keep(std::unique_ptr<Frames> frames) {
    const std::lock_guard lock(kept().mutex);
    kept().parting.push_back(std::move(frames));
}

void Frames::tend_kept() {
    // The plugin is called without the lock, as its calls may never return.
    std::list<std::unique_ptr<Frames>> parting, hopeless;
    {
        const std::unique_lock lock(kept().mutex, std::try_to_lock);
        if (!lock || kept().parting.empty()) return;
        parting.swap(kept().parting);
    }
    for (auto i = parting.begin(); i != parting.end();) {
        const auto here = i++;
        try {
            if ((*here)->part()) parting.erase(here);
        } catch (...) {
            log(Level::info, "a connection can't be closed in peace: %s", caught().what());
            hopeless.splice(hopeless.end(), parting, here);
        }
    }
    const std::lock_guard lock(kept().mutex);
    kept().parting.splice(kept().parting.end(), parting);
    kept().hopeless.splice(kept().hopeless.end(), hopeless);
}

}  // namespace tutti::plugin
