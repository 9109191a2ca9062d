// The shortest network beside TCP: mailboxes within this process. It shows what a Net has to do, and that the engine
// serves it.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>

#include "transport/net/engine.hpp"
#include "transport/net/net.hpp"
#include "transport/transport.hpp"

namespace tutti::harness {

class MailboxNet : public net::Net {
  public:
    /// tells: its endpoints have a descriptor that tells when a letter comes.
    explicit MailboxNet(bool tells) : tells_(tells) {}
    std::string_view name() const override { return "mailbox"; }
    std::uint64_t fabric() override { return 1; }
    std::string absence() override { return {}; }
    Line cost() const override { return {1, 0}; }
    std::unique_ptr<net::NetEndpoint> open(Rank, Rank, const net::LinkMemory&, std::chrono::milliseconds) override {
        return std::make_unique<Endpoint>(*this);
    }

  private:
    struct Letter {
        net::Header header;
        std::vector<std::byte> body;
    };
    struct Box {
        std::deque<Letter> letters;
        Fd event;
    };
    static constexpr std::size_t room = 5;

    class Endpoint : public net::NetEndpoint {
      public:
        explicit Endpoint(MailboxNet& net) : net_(net) {
            const std::lock_guard lock(net_.mutex_);
            address_ = ++net_.last_;
            mine_ = net_.boxes_[address_] = std::make_shared<Box>();
            if (net_.tells_) mine_->event = Fd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
        }
        ~Endpoint() override {
            const std::lock_guard lock(net_.mutex_);
            net_.boxes_.erase(address_);
        }
        std::vector<std::byte> offer() override {
            std::vector<std::byte> bytes(sizeof address_);
            std::memcpy(bytes.data(), &address_, sizeof address_);
            return bytes;
        }
        void meet(std::span<const std::byte> offer) override {
            const std::lock_guard lock(net_.mutex_);
            std::uint64_t address = 0;
            if (offer.size() == sizeof address) std::memcpy(&address, offer.data(), sizeof address);
            const auto found = net_.boxes_.find(address);
            if (found == net_.boxes_.end())
                lose("no such mailbox");
            else
                theirs_ = found->second;
        }
        std::vector<int> fds() const override {
            return mine_->event ? std::vector<int>{mine_->event.get()} : std::vector<int>{};
        }
        bool arm() override {
            const std::lock_guard lock(net_.mutex_);
            return mine_->letters.empty();
        }
        bool has_room() const override {
            const std::lock_guard lock(net_.mutex_);
            return theirs_ && theirs_->letters.size() < room;
        }
        void queue(const net::Header& header, const std::byte* body, bool) override {
            const std::lock_guard lock(net_.mutex_);
            theirs_->letters.push_back({header, std::vector<std::byte>(body, body + header.bytes)});
            const std::uint64_t one = 1;
            if (theirs_->event && write(theirs_->event.get(), &one, sizeof one) < 0) lose("no event");
        }
        bool is_empty() const override { return true; }
        bool send() override { return false; }
        bool receive(net::Recipient& to) override {
            std::uint64_t rings;
            if (mine_->event && read(mine_->event.get(), &rings, sizeof rings) < 0 && errno != EAGAIN) lose("no event");
            bool moved = false;
            for (Letter letter; trouble().empty() && take(letter); moved = true) {
                const char* why = "";
                std::byte* place = letter.header.fits() ? to.begin(letter.header, why) : nullptr;
                if (place == nullptr) return lose(why);
                std::copy(letter.body.begin(), letter.body.end(), place);
                to.finish(letter.header);
            }
            return moved;
        }
        std::string describe() const override { return "box " + std::to_string(address_); }

      private:
        bool take(Letter& letter) {
            const std::lock_guard lock(net_.mutex_);
            if (mine_->letters.empty()) return false;
            letter = std::move(mine_->letters.front());
            mine_->letters.pop_front();
            return true;
        }
        MailboxNet& net_;
        std::uint64_t address_;
        std::shared_ptr<Box> mine_, theirs_;
    };

    const bool tells_;
    mutable std::mutex mutex_;
    std::uint64_t last_ = 0;
    std::map<std::uint64_t, std::shared_ptr<Box>> boxes_;
};

/// Joins ranks by a net that the library doesn't know.
class NetUnderTest : public Transport {
  public:
    explicit NetUnderTest(net::Net& net) : net_(net) {}
    std::string_view name() const override { return net_.name(); }
    bool reaches(const EndpointInfo&, const EndpointInfo&) const override { return true; }
    Line cost() const override { return net_.cost(); }
    Sees sees() const override { return Sees::nothing; }
    bool needs_engine() const override { return true; }
    std::unique_ptr<Link> connect(const Neighbourhood& from, Rank peer, Deadline) const override {
        return net::make_link(from, peer, &net_);
    }

  private:
    net::Net& net_;
};

}  // namespace tutti::harness
