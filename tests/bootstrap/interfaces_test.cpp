#include "bootstrap/interfaces.hpp"

#include <arpa/inet.h>

#include "base/result.hpp"
#include "support.hpp"

namespace tutti::test {
namespace {

using bootstrap::Address;
using bootstrap::choose_interface;
using bootstrap::Interface;

Address ipv4(const char* text) {
    Address a;
    a.family = Address::Family::ipv4;
    inet_pton(AF_INET, text, a.body.data());
    return a;
}

Address ipv6(const char* text, std::uint32_t scope = 0) {
    Address a;
    a.family = Address::Family::ipv6;
    a.scope = scope;
    inet_pton(AF_INET6, text, a.body.data());
    return a;
}

const std::vector<Interface> machine = {
    {"lo", true, true, ipv4("127.0.0.1")},        {"docker0", true, false, ipv4("172.17.0.1")},
    {"virbr0", true, false, ipv4("192.168.1.1")}, {"eth0", false, false, ipv4("10.0.0.9")},
    {"eth1", true, false, ipv6("fe80::1", 4)},    {"eth1", true, false, ipv6("2001:db8::1")},
    {"eth1", true, false, ipv4("10.0.0.1")},      {"ib0", true, false, ipv4("10.1.0.1")},
};

std::string chosen(const std::string& wish) {
    return choose_interface(machine, wish).text();
}

}  // namespace

TEST_CASE("the interface to meet on is chosen as NCCL chooses") {
    CHECK(chosen("") == "10.0.0.1:0");
    CHECK(chosen("ib") == "10.1.0.1:0");
    CHECK(chosen("ib,eth") == "10.1.0.1:0");
    CHECK(chosen("eth,ib") == "10.0.0.1:0");
    CHECK(chosen("^eth") == "10.1.0.1:0");
    CHECK(chosen("^eth,ib") == "172.17.0.1:0");
    CHECK(chosen("=lo") == "127.0.0.1:0");
    CHECK(chosen("docker0") == "172.17.0.1:0");
    CHECK(chosen("^=eth1") == "10.1.0.1:0");
}

TEST_CASE("all interfaces that are named are rails, each once; else the best one alone") {
    const auto rails = [](const std::string& wish) {
        std::string all;
        for (const Address& a : bootstrap::choose_rails(machine, wish)) all += a.text() + " ";
        return all;
    };
    CHECK(rails("") == "10.0.0.1:0 ");
    CHECK(rails("^eth") == "10.1.0.1:0 ");
    CHECK(rails("eth") == "10.0.0.1:0 ");
    CHECK(rails("ib,eth") == "10.1.0.1:0 10.0.0.1:0 ");
    CHECK(rails("=eth1,ib0,lo") == "10.0.0.1:0 10.1.0.1:0 127.0.0.1:0 ");
    CHECK_THROWS_AS(rails("wlan"), Error);
}

TEST_CASE("an interface that is not there is named together with those that are") {
    for (const char* wish : {"wlan", "=eth", "eth0"}) {
        try {
            choose_interface(machine, wish);
            FAIL("chosen in spite of all");
        } catch (const Error& e) {
            CHECK(e.code() == tuttiInvalidUsage);
            CHECK(std::string(e.what()).find("lo, docker0, virbr0, eth1, ib0") != std::string::npos);
        }
    }
}

TEST_CASE("IPv6 serves where there is no IPv4, and nothing is chosen where there is nothing") {
    const std::vector<Interface> v6 = {{"lo", true, true, ipv6("::1")},
                                       {"a", true, false, ipv6("fe80::1", 2)},
                                       {"b", true, false, ipv6("2001:db8::1")}};
    CHECK(choose_interface(v6, "").text() == "[2001:db8::1]:0");
    CHECK(choose_interface(v6, "a").text() == "[fe80::1%2]:0");
    CHECK(choose_interface({v6[0]}, "").is_loopback());
    CHECK(!choose_interface({}, ""));
    CHECK(!choose_interface({}, "eth"));
}

}  // namespace tutti::test
