#include "bootstrap/frame.hpp"

#include <algorithm>
#include <array>

#include "base/result.hpp"

namespace tutti::bootstrap {
namespace {

constexpr std::size_t address_size = 24;
constexpr std::size_t member_size = 4 + 4 + 4 + 8 + 8 + 1 + host_limit + 2 * address_size;

// The greatest payload of each kind, in the order of Message.
constexpr std::array<std::size_t, std::variant_size_v<Message>> limits = {
    4 + member_size,                                       // Register
    member_size,                                           // Parent
    0,                                                     // Settled
    9,                                                     // Attach
    0,                                                     // Welcome
    member_size + 8 + endpoint_info_limit + Secret::size,  // Record
    4,                                                     // Ask
    14 + text_limit,                                       // Failure
    4 * left_limit,                                        // Left
    12,                                                    // Fetch
    5,                                                     // Give
    12,                                                    // Stripe
    1,                                                     // Accepted
    39 + invitation_size + 4 * left_limit,                 // Agree
    12 + note_limit,                                       // Note
};

bool is_rank(Rank rank, int ranks) {
    return rank >= 0 && rank < ranks;
}

// The fields of each message are listed once, by fields(). An Out writes them; an In reads them and refuses values that
// are out of range.
class Out {
  public:
    explicit Out(Bytes& to) : to_(to) {}

    template <class Number>
    void number(const Number& value) {
        to_.number(value);
    }
    template <class Raw, class Value>
    void number_as(const Value& value, Raw, Raw) {
        to_.number(static_cast<Raw>(value));
    }
    void short_text(const std::string& value, std::size_t limit) {
        const std::size_t size = std::min(limit, value.size());
        to_.number(static_cast<std::uint8_t>(size));
        to_.text(value, size);
    }
    void address(const Address& value) { value.write(to_); }
    void sized(const Bytes& bytes, std::size_t limit) {
        TUTTI_ASSERT(bytes.size() <= limit);
        to_.number(static_cast<std::uint32_t>(bytes.size()));
        to_.bytes(bytes);
    }
    void secret(const std::optional<Secret>& value) {
        TUTTI_ASSERT(value.has_value());
        to_.bytes(value->view());
    }
    void ranks(const std::vector<Rank>& all) {
        TUTTI_ASSERT(all.size() <= left_limit);
        for (const Rank r : all) to_.number(r);
    }
    void rest(const std::string& text) { to_.text(text, std::min(text_limit, text.size())); }
    void rest(const Bytes& bytes) { to_.bytes(bytes); }
    void expect(bool) {}

  private:
    Writer to_;
};

class In {
  public:
    explicit In(View from) : from_(from) {}
    /// Whether all bytes were read, and all values are in range.
    bool ok() const { return fine_ && from_.ok() && from_.left() == 0; }

    template <class Number>
    void number(Number& value) {
        value = from_.number<Number>();
    }
    template <class Raw, class Value>
    void number_as(Value& value, Raw least, Raw most) {
        const Raw raw = from_.number<Raw>();
        expect(raw >= least && raw <= most);
        if (fine_) value = static_cast<Value>(raw);
    }
    void short_text(std::string& value, std::size_t limit) {
        const auto size = from_.number<std::uint8_t>();
        expect(size <= limit);
        value = from_.text(size);
    }
    void address(Address& value) { value = Address::read(from_); }
    void sized(Bytes& bytes, std::size_t limit) {
        const auto size = from_.number<std::uint32_t>();
        expect(size <= limit);
        take(bytes, fine_ ? size : 0);
    }
    void secret(std::optional<Secret>& value) {
        const View bytes = from_.bytes(Secret::size);
        if (from_.ok()) value = Secret(bytes);
    }
    void ranks(std::vector<Rank>& all) {
        while (from_.left() >= sizeof(Rank)) {
            all.push_back(from_.number<Rank>());
            expect(is_rank(all.back(), ranks_limit));
        }
    }
    void rest(std::string& text) { text = from_.text(from_.left()); }
    void rest(Bytes& bytes) { take(bytes, from_.left()); }
    void expect(bool fine) { fine_ = fine_ && fine; }

  private:
    void take(Bytes& bytes, std::size_t size) {
        const View found = from_.bytes(size);
        bytes.assign(found.begin(), found.end());
    }

    Reader from_;
    bool fine_ = true;
};

template <class Io>
void flag(Io& io, bool& value) {
    io.number_as(value, std::uint8_t{0}, std::uint8_t{1});
}

template <class Io>
void fields(Io& io, Member& m) {
    io.number(m.rank), io.number(m.pid), io.number(m.uid), io.number(m.host), io.number(m.process);
    io.short_text(m.host_name, host_limit);
    io.address(m.local), io.address(m.remote);
    io.expect(is_rank(m.rank, ranks_limit));
}
template <class Io>
void fields(Io& io, Register& m) {
    io.number(m.ranks), fields(io, m.member);
    io.expect(m.ranks <= ranks_limit && is_rank(m.member.rank, m.ranks));
}
template <class Io>
void fields(Io& io, Parent& m) {
    fields(io, m.member);
}
template <class Io>
void fields(Io&, Settled&) {}
template <class Io>
void fields(Io& io, Attach& m) {
    io.number(m.ranks), io.number(m.rank), flag(io, m.tree);
    io.expect(m.ranks <= ranks_limit && is_rank(m.rank, m.ranks));
}
template <class Io>
void fields(Io&, Welcome&) {}
template <class Io>
void fields(Io& io, Record& m) {
    fields(io, m.member);
    io.sized(m.info, endpoint_info_limit);
    if (m.member.rank == 0) io.secret(m.share);
    io.number(m.round_trip_us);
}
template <class Io>
void fields(Io& io, Ask& m) {
    io.number(m.waited_ms);
}
template <class Io>
void fields(Io& io, Failure& m) {
    io.number_as(m.code, std::int32_t{tuttiSuccess + 1}, std::int32_t{tuttiNumResults - 1});
    io.number(m.origin), io.number(m.teller), flag(io, m.died), flag(io, m.silent), io.rest(m.text);
    for (const Rank r : {m.origin, m.teller}) io.expect(r == -1 || is_rank(r, ranks_limit));
}
template <class Io>
void fields(Io& io, Left& m) {
    io.ranks(m.ranks);
}
template <class Io>
void fields(Io& io, Fetch& m) {
    io.number(m.id), io.number(m.key);
}
template <class Io>
void fields(Io& io, Give& m) {
    io.number(m.id), flag(io, m.granted);
}
template <class Io>
void fields(Io& io, Stripe& m) {
    io.number(m.rank), io.number(m.number), io.number(m.count), io.number(m.ciphers);
    io.number_as(m.protection, std::uint8_t{0}, static_cast<std::uint8_t>(Protection::encrypted));
    io.number(m.round);
    io.expect(is_rank(m.rank, ranks_limit) && m.count <= stripes_limit && m.number < m.count);
}
template <class Io>
void fields(Io& io, Accepted& m) {
    io.number(m.cipher);
}
template <class Io>
void fields(Io& io, Agree& m) {
    io.number_as(m.step, std::uint8_t{0}, std::uint8_t{Agree::exclude});
    flag(io, m.more), flag(io, m.ok), io.number(m.call), io.number(m.number);
    io.number(m.serial), io.number(m.heard);
    io.sized(m.invitation, invitation_size), io.ranks(m.ranks);
    io.expect(m.invitation.empty() || m.invitation.size() == invitation_size);
}
template <class Io>
void fields(Io& io, Note& m) {
    io.number(m.rank), io.number(m.number), io.rest(m.bytes);
    io.expect(is_rank(m.rank, ranks_limit));
}

template <std::size_t kind>
std::optional<Message> read_message(View payload) {
    std::variant_alternative_t<kind, Message> message{};
    In in(payload);
    fields(in, message);
    if (!in.ok()) return {};
    return message;
}

/// By kind.
constexpr auto readers = []<std::size_t... kind>(std::index_sequence<kind...>) {
    return std::array{read_message<kind>...};
}
(std::make_index_sequence<limits.size()>());

}  // namespace

std::string Member::text() const {
    return tutti::text("rank %d (pid %u on host %s)", rank, pid, host_name.c_str());
}

Bytes encode(Message message) {
    Bytes out(header_size);
    Out fields_of(out);
    std::visit([&](auto& m) { fields(fields_of, m); }, message);
    const auto size = static_cast<std::uint32_t>(out.size() - header_size);
    TUTTI_ASSERT(size <= limits[message.index()]);
    std::memcpy(out.data(), &size, sizeof size);
    out[4] = static_cast<std::byte>(message.index());
    return out;
}

Split split_frame(View bytes, Frame& frame) {
    if (bytes.size() < header_size) return Split::incomplete;
    Reader header(bytes.first(header_size));
    const auto size = header.number<std::uint32_t>();
    frame.kind = header.number<std::uint8_t>();
    for (const std::byte zero : header.bytes(3))
        if (zero != std::byte{0}) return Split::bad;
    if (frame.kind >= limits.size() || size > limits[frame.kind]) return Split::bad;
    if (bytes.size() < header_size + size + mac_size) return Split::incomplete;
    frame.sealed = bytes.first(header_size + size);
    frame.payload = frame.sealed.subspan(header_size);
    frame.seal = bytes.subspan(header_size + size, mac_size);
    return Split::complete;
}

std::optional<Message> parse(std::uint8_t kind, View payload) {
    if (kind >= limits.size() || payload.size() > limits[kind]) return {};
    return readers[kind](payload);
}

bool fits(const Message& message, int ranks) {
    return std::visit(
        [ranks](const auto& m) {
            if constexpr (requires { m.member; })
                return m.member.rank < ranks;
            else if constexpr (requires { m.origin; })
                return m.origin < ranks && m.teller < ranks;
            else if constexpr (requires { m.rank; })
                return m.rank < ranks;
            else if constexpr (requires { m.ranks.size(); })
                return std::ranges::all_of(m.ranks, [ranks](Rank r) { return r < ranks; });
            else
                return true;
        },
        message);
}

}  // namespace tutti::bootstrap
