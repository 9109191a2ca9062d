// The connections on which frames travel: a header, and the body if it is small. The receiver has places for `most` of
// them all the time.
//
// A plugin may give up all that shares something with a connection which is closed while requests are under way on it.
// So whoever goes sends `most` empty frames, for the places at the other end, and is sent as many; until then the
// connections are kept, also when their endpoint is gone.
#pragma once

#include <memory>

#include "transport/net/header.hpp"
#include "transport/plugin/requests.hpp"

namespace tutti::plugin {

class Frames {
  public:
    static constexpr unsigned most = 16;
    static_assert(2 * most <= Requests::most, "empty frames queue behind those that are under way");
    static constexpr std::size_t small = 4096 - sizeof(net::Header);  // bytes of a body that may travel along
    struct Frame {
        net::Header head;
        std::byte body[small];
    };

    /// lease: kept as long as the connections. Throws what the plugin does, as all else here.
    Frames(const Connector& connector, std::shared_ptr<void> lease);

    Requests& out() { return out_; }
    Requests& in() { return in_; }
    /// A step further. True once both connections stand, and places are there for what arrives.
    bool open();

    bool has_room() const { return out_.count() < most; }
    /// along: with a copy of the body, which is small.
    void queue(const net::Header& header, const std::byte* body, bool along);
    bool is_empty() const { return out_.count() == 0; }
    bool send();

    /// The oldest frame that has arrived and was not done with; nullptr: none. size: of it.
    const Frame* next(std::size_t& size);
    void done();

    /// The other end goes: nothing but empty frames comes any more, and nobody reads what is sent.
    bool is_ended() const { return peer_ended_; }
    void say_end();
    /// A step of the farewell. True once nothing is under way.
    bool part();

    /// Takes over what can't be closed yet, and goes on with it now and then.
    static void keep(std::unique_ptr<Frames> frames);
    static void tend_kept();

  private:
    void expect(unsigned number);

    const std::shared_ptr<void> lease_;
    const Mapping memory_;  // of frames: those that are sent, those that arrive
    Frame* const sent_;
    Frame* const arrived_;
    Requests out_, in_;
    unsigned next_out_ = 0, next_in_ = 0;
    std::size_t here_ = 0;  // bytes of the frame that is next; 0: none was taken
    bool open_ = false, ended_ = false, peer_ended_ = false;
};

}  // namespace tutti::plugin
