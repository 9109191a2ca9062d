// What a rank that lies sends by a network plugin: its offer, with handles, and frames. The plugin itself keeps to its
// contract.
#include <deque>

#include "fuzz.hpp"
#include "transport/plugin/endpoint.hpp"

using namespace tutti;
using namespace tutti::plugin;

namespace {

struct Memory {
    const std::byte* base;
    std::size_t size;
};

net::Header header_of(fuzz::Input& in) {
    net::Header h{};
    h.what = static_cast<net::What>(in.below(9));
    h.channel = static_cast<std::uint8_t>(in.below(8) == 1 ? in.number<std::uint8_t>() : in.below(3));
    h.in_slot = static_cast<std::uint8_t>(in.below(4) == 1 ? in.below(3) : 0);
    constexpr std::uint32_t lengths[] = {0,
                                         8,
                                         inline_bytes,
                                         inline_bytes + 1,
                                         sizeof(net::Spot),
                                         sizeof(net::Board),
                                         1000,
                                         static_cast<std::uint32_t>(Frames::small),
                                         sizeof(net::Offer),
                                         slot_bytes};
    h.bytes = lengths[in.below(std::size(lengths))];
    return h;
}

/// Requests are done when the input says so, and bring what it says.
class FuzzedPlugin : public Plugin {
  public:
    fuzz::Input* in = nullptr;
    bool ends = false;  // all requests are done, frames are empty

    const std::string& file() const override { return file_; }
    std::string name() const override { return "fuzz"; }
    int version() const override { return 8; }
    int devices() override { return 1; }
    Device device(int) override { return {}; }
    std::shared_ptr<void> context() override { return nullptr; }
    void* listen(void*, int, Handle&) override { return this; }
    void* connect(void*, int, Handle& to) override {
        for (std::byte& b : to.bytes) b ^= std::byte{1};  // notes of its own
        return in->below(8) == 1 ? nullptr : this;
    }
    void* accept(void*) override { return in->below(8) == 1 ? nullptr : this; }
    void* register_memory(void*, void* data, std::size_t size) override {
        memory_.push_back({static_cast<std::byte*>(data), size});
        return &memory_.back();
    }
    void* register_gpu_memory(void*, void*, std::size_t, int) override { return nullptr; }
    bool can_take_gpus() const override { return false; }
    void forget_memory(void*, void*) override {}
    void* send(void*, void* data, std::size_t size, void* memory) override {
        return request(data, size, memory, false);
    }
    void* receive(void*, void* data, std::size_t size, void* memory) override {
        return request(data, size, memory, true);
    }
    void* flush(void*, void*, std::size_t, void*) override { return nullptr; }
    bool can_flush() const override { return false; }
    bool is_done(void* request, std::size_t& size) override {
        const Request& r = *static_cast<Request*>(request);
        size = r.size;
        if (ends && r.receives) size = std::min<std::size_t>(size, 1);
        if (ends || !r.receives) return true;
        if (in->empty() || in->flag()) return false;
        fill(r, size);
        return true;
    }
    void close_send(void*) override {}
    void close_receive(void*) override {}
    void close_listen(void*) override {}

  private:
    struct Request {
        std::byte* data;
        std::size_t size;
        bool receives;
    };
    void* request(void* data, std::size_t size, void* memory, bool receives) {
        auto* const at = static_cast<std::byte*>(data);
        const Memory& registered = *static_cast<const Memory*>(memory);
        TUTTI_ASSERT(at >= registered.base && at + size <= registered.base + registered.size);
        requests_.push_back({at, size, receives});
        return &requests_.back();
    }
    void fill(const Request& r, std::size_t& size) {
        if (r.size != sizeof(Frames::Frame)) {  // a body
            if (in->below(8) == 1) size = in->below(static_cast<std::uint32_t>(r.size) + 1);
            std::memset(r.data, 5, size);
            return;
        }
        net::Header h = header_of(*in);
        size = in->below(2) == 1 ? sizeof h : std::min(sizeof h + h.bytes, r.size);
        if (in->below(16) == 1) size = in->number<std::uint16_t>() % (r.size + 1);
        if (in->below(16) == 1) in->fill(&h, sizeof h);
        std::memcpy(r.data, &h, std::min(size, sizeof h));
    }

    const std::string file_ = "libfuzz.so";
    std::deque<Memory> memory_;
    std::deque<Request> requests_;
};

/// As net::Ends.
class Taker : public net::Recipient {
  public:
    explicit Taker(const Arena& inbox) : inbox_(inbox) {}
    std::byte* begin(const net::Header& h, const char*& why) override {
        TUTTI_ASSERT(h.fits());
        why = "refused";
        if (h.what == net::What::landed) return nullptr;
        if (h.in_slot == 1) {
            const Wire wire = inbox_.wire(0, h.channel, nullptr);
            return h.bytes > wire.stride ? nullptr : wire.slots;  // as net::Channel
        }
        place_.resize(h.bytes);
        return h.bytes == 0 ? reinterpret_cast<std::byte*>(this) : place_.data();
    }
    void finish(const net::Header&) override {}

  private:
    const Arena& inbox_;
    std::vector<std::byte> place_;
};

std::vector<std::byte> offer_of(fuzz::Input& in, Endpoint& endpoint) {
    std::vector<std::byte> offer = endpoint.offer();  // as the other end's would be
    for (unsigned changes = in.below(3); changes > 0; --changes) {
        const std::size_t at = in.number<std::uint16_t>() % offer.size();
        in.fill(offer.data() + at, std::min<std::size_t>(offer.size() - at, in.below(80)));
    }
    if (in.below(16) == 1) offer.resize(in.number<std::uint16_t>() % 1024);
    return offer;
}

}  // namespace

FUZZ_TARGET(plugin) {
    static const std::shared_ptr<Arena> mine = Arena::make(2, false), inbox = Arena::make(1, false);
    const auto plugin = std::make_shared<FuzzedPlugin>();
    plugin->in = &in;
    Taker taker(*inbox);
    Endpoint endpoint({plugin, nullptr, 0}, plugin->device(0), nullptr, 1, {*mine, *inbox});
    endpoint.meet(offer_of(in, endpoint));
    for (const unsigned char c : endpoint.describe()) TUTTI_ASSERT(c >= ' ' && c != 127);
    for (int actions = 0; actions < 64 && !in.empty() && endpoint.trouble().empty(); ++actions) {
        net::Header h{};
        h.in_slot = 1;
        h.bytes = 1000;
        switch (in.below(4)) {
            case 0:
                if (endpoint.has_room()) endpoint.queue(h, mine->wire(1, 0, nullptr).slots, false);
                break;
            case 1:
                endpoint.send();
                break;
            default:
                endpoint.receive(taker);
        }
    }
    plugin->ends = true;
}
