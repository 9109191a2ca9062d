#include "run/surroundings.hpp"

#include <netinet/in.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdlib>

#include "run/say.hpp"

namespace run {

namespace {

/// A port that nobody uses now. Rank 0 binds it in a moment; the kernel deals such ports out at random, so that it is
/// as good as certain to be free still.
int free_port() {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* any = reinterpret_cast<sockaddr*>(&address);
    if (fd < 0 || bind(fd, any, size) < 0 || getsockname(fd, any, &size) < 0) die("cannot get a port on 127.0.0.1");
    close(fd);
    return ntohs(address.sin_port);
}

std::string fresh_secret() {
    std::array<unsigned char, 32> bytes;
    if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) die("cannot get random bytes");
    std::string hex;
    for (const unsigned char byte : bytes) {
        hex += "0123456789abcdef"[byte >> 4];
        hex += "0123456789abcdef"[byte & 15];
    }
    return hex;
}

}  // namespace

void set(const char* name, const std::string& value) {
    if (setenv(name, value.c_str(), 1) != 0) die("cannot set a variable");
}

void set_common_variables(const Options& options) {
    const std::string ranks = std::to_string(options.ranks);
    set("WORLD_SIZE", ranks);
    set("LOCAL_WORLD_SIZE", ranks);
    set("MASTER_ADDR", "127.0.0.1");
    set("MASTER_PORT", std::to_string(free_port()));
    set("TUTTI_SECRET", fresh_secret());
    for (const auto& [name, value] : options.variables) set(name.c_str(), value);
}

}  // namespace run
