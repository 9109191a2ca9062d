// Where secrets lie in memory, and for how long.
#include <algorithm>
#include <fstream>
#include <new>
#include <sstream>

#include "bootstrap/auth.hpp"
#include "bootstrap/connection.hpp"
#include "bootstrap/directory.hpp"
#include "support.hpp"

namespace tutti::test {
namespace {

using namespace bootstrap;

/// Whether a core dump leaves out the page at this address, as the kernel says.
bool is_left_out(const void* address) {
    const auto wanted = reinterpret_cast<std::uintptr_t>(address);
    std::ifstream maps("/proc/self/smaps");
    bool there = false;
    for (std::string line; std::getline(maps, line);) {
        std::istringstream words(line);
        std::string first;
        words >> first;
        if (const std::size_t dash = first.find('-'); dash != std::string::npos)
            there = std::stoull(first.substr(0, dash), nullptr, 16) <= wanted &&
                    wanted < std::stoull(first.substr(dash + 1), nullptr, 16);
        if (there && first == "VmFlags:") return (line + " ").find(" dd ") != std::string::npos;
    }
    return false;
}

bool all_zero(View bytes) {
    return std::ranges::all_of(bytes, [](std::byte b) { return b == std::byte{0}; });
}

/// A rendezvous that sends everybody to the parent that it is told, and this parent, which hangs up.
class Liar : public ConnectionUser {
  public:
    Liar(const Rendezvous& rendezvous, Rank parent) : parent_(parent), service_(Service::get()) {
        std::array<std::byte, 16> name;
        random_bytes(name.data(), name.size());
        service_->run([&] {
            place_ = Listener::open(*service_, *this, rendezvous.local(), rendezvous.secret, directory_tag);
            member_ = Listener::open(*service_, *this, Address::local(name), rendezvous.secret.derive("tutti members"),
                                     static_cast<std::uint64_t>(parent));
        });
    }
    ~Liar() override {
        service_->run([&] {
            for (const auto& c : visitors_) c->close();
            place_->close();
            member_->close();
        });
    }

  private:
    void opened(Connection& c) override { visitors_.push_back(c.shared_from_this()); }
    void received(Connection& c, Message& message, Fd) override {
        c.send(Welcome{});
        if (const auto* request = std::get_if<Register>(&message)) {
            Member parent = request->member;
            parent.rank = parent_;
            parent.local = member_->address();
            c.send(Parent{parent});
        } else {
            c.close();
        }
    }
    void closed(Connection&, const Loss&) override {}

    const Rank parent_;
    const std::shared_ptr<Service> service_;
    std::shared_ptr<Listener> place_, member_;
    std::vector<std::shared_ptr<Connection>> visitors_;
};

}  // namespace

TEST_CASE("core dumps leave secrets out") {
    const int ordinary = 0;
    CHECK_FALSE(is_left_out(&ordinary));
    const Secret secret = Secret::random(), derived = secret.derive("a test"), copy = derived;
    for (const Secret* s : {&secret, &derived, &copy}) CHECK(is_left_out(s->view().data()));
    void* const pages = take_pages(100);
    CHECK(is_left_out(pages));
    give_back_pages(pages, 100);
}

TEST_CASE("secrets and identities are wiped when they go") {
    View cell;
    {
        const Secret secret = Secret::random();
        cell = secret.view();
        CHECK_FALSE(all_zero(cell));
    }
    CHECK(all_zero(cell));  // its page stays
    alignas(Identity) std::byte room[sizeof(Identity)];
    auto* const identity = new (room) Identity(Identity::create());
    CHECK_FALSE(all_zero(room));
    identity->~Identity();
    CHECK(all_zero(room));
}

TEST_CASE("a parent that can't be is refused by name, whatever the rendezvous says") {
    const Rank parent = GENERATE(1'000'000, 4, 3, 1);
    Rendezvous rendezvous;
    rendezvous.flags = Rendezvous::one_host | Rendezvous::rank0_opens;
    rendezvous.secret = Secret::random();
    const Liar liar(rendezvous, parent);
    const std::string error = join_error(rendezvous.identity(), 1, 4, 20s);
    CHECK(error.find("the rendezvous told rank 1") != std::string::npos);
    CHECK(error.find("can't be meant") != std::string::npos);
}

}  // namespace tutti::test
