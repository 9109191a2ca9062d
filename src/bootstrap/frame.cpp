#include "bootstrap/frame.hpp"

#include <algorithm>
#include <array>

#include "base/result.hpp"

namespace tutti::bootstrap {
namespace {

constexpr std::size_t address_size = 24;
constexpr std::size_t member_size = 4 + 4 + 4 + 8 + 8 + host_limit + 2 * address_size;

// The greatest payload of each kind, in the order of Message.
constexpr std::array<std::size_t, std::variant_size_v<Message>> limits = {
    4 + member_size,                                       // Register
    member_size,                                           // Parent
    0,                                                     // Settled
    9,                                                     // Attach
    0,                                                     // Welcome
    member_size + 4 + endpoint_info_limit + Secret::size,  // Record
    4,                                                     // Ask
    13 + text_limit,                                       // Failure
    4 * left_limit,                                        // Left
    12,                                                    // Fetch
    5,                                                     // Give
    8,                                                     // Stripe
    1,                                                     // Accepted
    19 + 4 * left_limit,                                   // Agree
    12 + note_limit,                                       // Note
};

void write(Writer& out, const Member& m) {
    out.number(m.rank);
    out.number(m.pid);
    out.number(m.uid);
    out.number(m.host);
    out.number(m.process);
    out.text(m.host_name, host_limit);
    m.local.write(out);
    m.remote.write(out);
}

Member read_member(Reader& in) {
    Member m;
    m.rank = in.number<Rank>();
    m.pid = in.number<std::uint32_t>();
    m.uid = in.number<std::uint32_t>();
    m.host = in.number<std::uint64_t>();
    m.process = in.number<std::uint64_t>();
    m.host_name = in.text(host_limit);
    m.local = Address::read(in);
    m.remote = Address::read(in);
    return m;
}

bool is_rank(Rank rank) {
    return rank >= 0 && rank < ranks_limit;
}

void payload(Writer& out, const Register& m) {
    out.number(m.ranks), write(out, m.member);
}
void payload(Writer& out, const Parent& m) {
    write(out, m.member);
}
void payload(Writer&, const Settled&) {}
void payload(Writer& out, const Attach& m) {
    out.number(m.ranks), out.number(m.rank), out.number(std::uint8_t{m.tree});
}
void payload(Writer&, const Welcome&) {}
void payload(Writer& out, const Ask& m) {
    out.number(m.waited_ms);
}
void payload(Writer& out, const Fetch& m) {
    out.number(m.id), out.number(m.key);
}
void payload(Writer& out, const Give& m) {
    out.number(m.id), out.number(std::uint8_t{m.granted});
}

void payload(Writer& out, const Stripe& m) {
    out.number(m.rank), out.number(m.number), out.number(m.count), out.number(m.ciphers);
    out.number(std::uint8_t{m.encrypt});
}
void payload(Writer& out, const Accepted& m) {
    out.number(m.cipher);
}

void payload(Writer& out, const Record& m) {
    TUTTI_ASSERT(m.info.size() <= endpoint_info_limit);
    write(out, m.member);
    out.number(static_cast<std::uint32_t>(m.info.size()));
    out.bytes(m.info);
    TUTTI_ASSERT(m.share.has_value() == (m.member.rank == 0));
    if (m.share) out.bytes(m.share->view());
}

void payload(Writer& out, const Failure& m) {
    out.number(static_cast<std::int32_t>(m.code));
    out.number(m.origin);
    out.number(m.teller);
    out.number(std::uint8_t{m.died});
    out.text(m.text, std::min(text_limit, m.text.size()));
}

void payload(Writer& out, const Left& m) {
    TUTTI_ASSERT(m.ranks.size() <= left_limit);
    for (const Rank r : m.ranks) out.number(r);
}

void payload(Writer& out, const Agree& m) {
    TUTTI_ASSERT(m.ranks.size() <= left_limit);
    out.number(static_cast<std::uint8_t>(m.step)), out.number(std::uint8_t{m.more}), out.number(std::uint8_t{m.ok});
    out.number(m.call), out.number(m.number);
    for (const Rank r : m.ranks) out.number(r);
}

void payload(Writer& out, const Note& m) {
    out.number(m.rank), out.number(m.number);
    out.bytes(m.bytes);
}

std::optional<Message> read_register(Reader& in) {
    Register m{in.number<std::int32_t>(), read_member(in)};
    if (m.ranks < 1 || m.ranks > ranks_limit || m.member.rank < 0 || m.member.rank >= m.ranks) return {};
    return m;
}

std::optional<Message> read_parent(Reader& in) {
    Parent m{read_member(in)};
    if (!is_rank(m.member.rank)) return {};
    return m;
}

std::optional<Message> read_attach(Reader& in) {
    Attach m{in.number<std::int32_t>(), in.number<Rank>(), false};
    const auto tree = in.number<std::uint8_t>();
    if (m.ranks < 1 || m.ranks > ranks_limit || m.rank < 0 || m.rank >= m.ranks || tree > 1) return {};
    m.tree = tree == 1;
    return m;
}

std::optional<Message> read_record(Reader& in) {
    Record m{read_member(in), {}, {}};
    const auto size = in.number<std::uint32_t>();
    if (!is_rank(m.member.rank) || size > endpoint_info_limit) return {};
    const View info = in.bytes(size);
    m.info.assign(info.begin(), info.end());
    if (m.member.rank != 0) return m;
    const View share = in.bytes(Secret::size);
    if (!in.ok()) return {};
    m.share = Secret(share);
    return m;
}

std::optional<Message> read_failure(Reader& in) {
    Failure m{};
    const auto code = in.number<std::int32_t>();
    m.origin = in.number<Rank>();
    m.teller = in.number<Rank>();
    const auto died = in.number<std::uint8_t>();
    const auto nobody_or_rank = [](Rank r) { return r == -1 || is_rank(r); };
    if (code <= tuttiSuccess || code >= tuttiNumResults || died > 1) return {};
    if (!nobody_or_rank(m.origin) || !nobody_or_rank(m.teller)) return {};
    m.died = died == 1;
    m.code = static_cast<tuttiResult_t>(code);
    m.text = in.text(in.left());
    return m;
}

std::optional<Message> read_left(Reader& in) {
    Left m;
    while (in.left() >= 4) {
        m.ranks.push_back(in.number<Rank>());
        if (!is_rank(m.ranks.back())) return {};
    }
    return m;
}

std::optional<Message> read_give(Reader& in) {
    Give m{in.number<std::uint32_t>(), false};
    const auto granted = in.number<std::uint8_t>();
    if (granted > 1) return {};
    m.granted = granted == 1;
    return m;
}

std::optional<Message> read_stripe(Reader& in) {
    Stripe m{in.number<Rank>(), in.number<std::uint8_t>(), in.number<std::uint8_t>(), in.number<std::uint8_t>(), false};
    const auto encrypt = in.number<std::uint8_t>();
    if (!is_rank(m.rank) || m.count > stripes_limit || m.number >= m.count || encrypt > 1) return {};
    m.encrypt = encrypt == 1;
    return m;
}

std::optional<Message> read_agree(Reader& in) {
    const auto step = in.number<std::uint8_t>(), more = in.number<std::uint8_t>(), ok = in.number<std::uint8_t>();
    if (step > Agree::commit || more > 1 || ok > 1) return {};
    Agree m{static_cast<Agree::Step>(step), more == 1, ok == 1, 0, 0, {}};
    m.call = in.number<std::uint64_t>();
    m.number = in.number<std::uint64_t>();
    while (in.left() >= 4) {
        m.ranks.push_back(in.number<Rank>());
        if (!is_rank(m.ranks.back())) return {};
    }
    return m;
}

std::optional<Message> read_note(Reader& in) {
    Note m{in.number<Rank>(), in.number<std::uint64_t>(), {}};
    if (!is_rank(m.rank)) return {};
    const View bytes = in.bytes(in.left());
    m.bytes.assign(bytes.begin(), bytes.end());
    return m;
}

std::optional<Message> read_payload(std::uint8_t kind, Reader& in) {
    switch (kind) {
        case 0:
            return read_register(in);
        case 1:
            return read_parent(in);
        case 2:
            return Settled{};
        case 3:
            return read_attach(in);
        case 4:
            return Welcome{};
        case 5:
            return read_record(in);
        case 6:
            return Ask{in.number<std::uint32_t>()};
        case 7:
            return read_failure(in);
        case 8:
            return read_left(in);
        case 9: {
            Fetch m{in.number<std::uint32_t>(), 0};
            m.key = in.number<std::uint64_t>();
            return m;
        }
        case 10:
            return read_give(in);
        case 11:
            return read_stripe(in);
        case 12:
            return Accepted{in.number<std::uint8_t>()};
        case 13:
            return read_agree(in);
        case 14:
            return read_note(in);
        default:
            return {};
    }
}

}  // namespace

std::string Member::text() const {
    return tutti::text("rank %d (pid %u on host %s)", rank, pid, host_name.c_str());
}

Bytes encode(const Message& message) {
    Bytes out(header_size);
    Writer writer(out);
    std::visit([&](const auto& m) { payload(writer, m); }, message);
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
    Reader in(payload);
    std::optional<Message> message = read_payload(kind, in);
    if (!in.ok() || in.left() != 0) return {};
    return message;
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
