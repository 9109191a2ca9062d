// The two connections on which frames travel: a header, and the body if it is small. The receiver always has buffers
// posted for `most` frames.
//
// If a connection is closed while requests are under way on it, a plugin may fail other connections that share
// something with it. So an end that leaves sends `most` empty frames (of one byte), one for each buffer that the peer
// has posted, and waits for as many. Until then the connections are kept, even after their endpoint is destroyed.
#pragma once

#include <memory>

#include "transport/net/header.hpp"
#include "transport/plugin/requests.hpp"

namespace tutti::plugin {

/// Owned by an Endpoint, and used under the engine's lock; after keep() owned by the process-wide list of kept ones.
class Frames {
  public:
    static constexpr unsigned most = 16;  // frames in each direction
    static_assert(2 * most <= Requests::most, "empty frames queue behind those that are under way");
    static constexpr std::size_t small = 4096 - sizeof(net::Header);  // longest body in a frame, in bytes
    struct Frame {
        net::Header head;
        std::byte body[small];
    };

    /// lease: released when the connections are closed. All functions throw what the plugin throws.
    Frames(const Connector& connector, std::shared_ptr<void> lease);

    Requests& out() { return out_; }
    Requests& in() { return in_; }
    /// A step towards both connections. True once they stand and buffers are posted for arriving frames.
    bool open();

    bool has_room() const { return out_.count() < most; }
    /// along: copies the body into the frame; it has at most `small` bytes.
    void queue(const net::Header& header, const std::byte* body, bool along);
    bool is_empty() const { return out_.count() == 0; }
    /// Moves queued frames. True if anything moved.
    bool send();

    /// The oldest frame that has arrived and for which done() was not called. size: its bytes, whatever the plugin says
    /// that they are, 0 too. nullptr if there is none.
    const Frame* next(std::size_t& size);
    /// Releases what next() has returned, and posts its buffer again.
    void done();

    /// Whether the peer has left: it sends only empty frames from now on, and does not read what it is sent.
    bool is_ended() const { return peer_ended_; }
    /// Queues the empty frames that tell the peer that this end leaves; once.
    void say_end();
    /// A step of leaving: says the end, and drops what arrives. True once nothing is under way.
    bool part();

    /// Takes over connections that can't be closed yet. Any thread.
    static void keep(std::unique_ptr<Frames> frames);
    /// A step of part() for all kept ones; closes those that are through. Any thread.
    static void tend_kept();

  private:
    void expect(unsigned number);

    const std::shared_ptr<void> lease_;
    const Mapping memory_;  // `most` frames to send, then `most` that arrive
    Frame* const sent_;
    Frame* const arrived_;
    Requests out_, in_;
    unsigned next_out_ = 0, next_in_ = 0;                     // frames so far; modulo `most`, the index of the next
    std::size_t here_ = 0;                                    // bytes of the frame that next() returns
    bool is_here_ = false;                                    // there is such a frame
    bool open_ = false, ended_ = false, peer_ended_ = false;  // ended_: say_end() was called
};

}  // namespace tutti::plugin
