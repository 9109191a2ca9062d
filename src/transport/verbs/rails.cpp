#include "transport/verbs/rails.hpp"

#include <algorithm>
#include <cstring>
#include <map>

#include "base/result.hpp"

namespace tutti::verbs {

/// Passes frames on to `to`, but holds a bye back until it has come by all rails: before that, messages may still be on
/// their way by the others.
class Rails::Gate : public net::Recipient {
  public:
    Gate(const Rails& rails, net::Recipient& to) : rails_(rails), to_(to) {}
    std::byte* begin(const net::Header& header, const char*& why) override { return to_.begin(header, why); }
    void finish(const net::Header& header) override {
        const auto said_bye = [](const auto& rail) { return rail->said_bye(); };
        if (header.what != net::What::bye || std::ranges::all_of(rails_.rails_, said_bye)) to_.finish(header);
    }

  private:
    const Rails& rails_;
    net::Recipient& to_;
};

Rails::Rails(const std::vector<Port>& ports, int queue_pairs, Rank self, Rank peer, const net::LinkMemory& memory,
             std::chrono::milliseconds silence_limit)
    : shift_(self + peer) {
    std::vector<Port> from = ports;
    std::rotate(from.begin(), from.begin() + shift_ % static_cast<std::ptrdiff_t>(from.size()), from.end());
    for (Port& port : from)
        if (memory.here != nullptr) port.distance = distance(port.device->location(), *memory.here);
    std::vector<Port> chosen = from;
    std::ranges::stable_sort(chosen, {}, &Port::distance);
    if (chosen.size() > most_ports) {  // the nearest half, then the first of `from`, which the peer chooses as well
        chosen.resize(most_ports / 2);
        for (const Port& port : from)
            if (chosen.size() < most_ports && std::ranges::find(chosen, port.rail, &Port::rail) == chosen.end())
                chosen.push_back(port);
    }
    std::map<const Device*, std::shared_ptr<LinkSlots>> slots;
    const int lanes = std::clamp(queue_pairs, 1, static_cast<int>(most_rails / chosen.size()));
    for (int lane = 0; lane < lanes; ++lane)
        for (const Port& port : chosen) {
            std::shared_ptr<LinkSlots>& its = slots[port.device.get()];
            if (!its) its = std::make_shared<LinkSlots>(port.device, peer, memory);
            rails_.push_back(std::make_unique<Rail>(port, lane, its, silence_limit));
        }
}

std::vector<std::byte> Rails::offer() {
    std::vector<std::byte> all;
    for (const auto& rail : rails_) {
        const std::vector<std::byte> one = rail->offer();
        all.insert(all.end(), one.begin(), one.end());
    }
    return all;
}

void Rails::meet(std::span<const std::byte> offer) {
    const std::size_t count = offer.size() / sizeof(Offer);
    if (count == 0 || count > most_rails || offer.size() % sizeof(Offer) != 0)
        return void(lose("it has offered something that no version offers"));
    std::vector<Offer> theirs(count);
    std::memcpy(theirs.data(), offer.data(), offer.size());
    const auto equal = [&](const auto& rail) { return std::ranges::find(theirs, rail->number(), Rail::number_of); };
    if (std::ranges::none_of(rails_, [&](const auto& rail) { return equal(rail) != theirs.end(); })) {
        rails_.resize(1);
        rails_[0]->meet(theirs[0]);
        return check(*rails_[0]);
    }
    std::erase_if(rails_, [&](const auto& rail) { return equal(rail) == theirs.end(); });
    const auto way = [&](const auto& rail) { return rail->port().distance + equal(rail)->distance; };
    const int shortest = way(*std::ranges::min_element(rails_, {}, way));
    std::erase_if(rails_, [&](const auto& rail) { return way(rail) > shortest; });
    std::ranges::sort(rails_, {}, [](const auto& rail) { return rail->number(); });  // the same order at both ends
    for (const auto& rail : rails_) {
        rail->meet(*equal(rail));
        check(*rail);
    }
}

Rail& Rails::of(int channel) const {
    return *rails_[static_cast<std::size_t>(shift_ + channel) % rails_.size()];
}

/// The way of that number for messages of one_sided_channel.
Rail& Rails::by(std::uint64_t way) const {
    return *rails_[(static_cast<std::size_t>(shift_ + one_sided_channel) + way) % rails_.size()];
}

Rail& Rails::of(const net::Header& header) const {
    const bool any = header.channel == one_sided_channel && header.what == net::What::message;
    return any ? by(header.row) : of(header.channel);
}

void Rails::check(const Rail& rail) {
    if (rail.trouble().empty()) return;
    const std::string why = rails_.size() == 1 ? rail.trouble() : rail.describe() + ": " + rail.trouble();
    rail.is_hopeless() ? lose_for_good(why) : lose(why);
}

bool Rails::has_room() const {
    return rails_.size() == 1 ? rails_[0]->has_room()
                              : std::ranges::all_of(rails_, [](const auto& rail) { return rail->has_room(); });
}

void Rails::queue(const net::Header& header, const std::byte* body, bool copied) {
    if (header.what == net::What::bye) {
        for (const auto& rail : rails_) rail->queue(header, body, copied);
        return;
    }
    Rail& rail = of(header);
    rail.queue(header, body, copied);
    check(rail);
}

bool Rails::knows(const std::byte* memory, std::size_t bytes) {
    return std::ranges::all_of(rails_, [&](const auto& rail) { return rail->knows(memory, bytes); });
}

net::RemoteMemory Rails::expose(int channel, std::byte* memory, std::size_t bytes) {
    return of(channel).expose(channel, memory, bytes);
}

void Rails::put(const net::Header& header, const std::byte* body, const std::byte* slot, const net::RemoteMemory* to) {
    Rail& rail = of(header);
    rail.put(header, body, slot, to);
    check(rail);
}

void Rails::write_to(const net::Header& header, const std::byte* body, std::span<const std::byte> data,
                     const net::RemoteMemory& to) {
    Rail& rail = of(header);
    rail.write_to(header, body, data, to);
    check(rail);
}

bool Rails::reads_to(int channel, const std::byte* memory, std::size_t bytes) {
    return of(channel).reads_to(channel, memory, bytes);
}

void Rails::read_from(int channel, std::span<std::byte> to, const net::RemoteMemory& from) {
    Rail& rail = of(channel);
    rail.read_from(channel, to, from);
    check(rail);
}

bool Rails::is_empty() const {
    return std::ranges::all_of(rails_, [](const auto& rail) { return rail->is_empty(); });
}

bool Rails::receive(net::Recipient& to) {
    if (rails_.size() == 1) {
        const bool moved = rails_[0]->receive(to);
        check(*rails_[0]);
        return moved;
    }
    Gate gate(*this, to);
    bool moved = false;
    for (const auto& rail : rails_) {
        moved |= rail->receive(gate);
        check(*rail);
    }
    return moved;
}

std::vector<int> Rails::fds() const {
    std::vector<int> all;
    for (const auto& rail : rails_) all.push_back(rail->fds().front());
    return all;
}

bool Rails::arm() {
    bool armed = true;
    for (const auto& rail : rails_) {
        armed &= rail->arm();
        check(*rail);
    }
    return armed;
}

void Rails::abandon() {
    for (const auto& rail : rails_) rail->abandon();
}

std::uint64_t Rails::broken() const {
    std::uint64_t ports = 0;
    for (const auto& rail : rails_)
        if (!rail->trouble().empty()) ports |= std::uint64_t{1} << rail->port().rail;
    return ports;
}

std::string Rails::describe() const {
    std::string all;
    for (const auto& rail : rails_) all += (all.empty() ? "" : ", ") + rail->describe();
    return all;
}

}  // namespace tutti::verbs
