// Writing and reading of identities and frames, as fixed-size little-endian fields. A Reader never reads past its end:
// it returns zeros or nothing instead, and ok() is false from then on, so the caller checks once, at the end.
#pragma once

#include <bit>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <vector>

namespace tutti::bootstrap {

static_assert(std::endian::native == std::endian::little, "fields are copied as they lie in memory");

using Bytes = std::vector<std::byte>;
using View = std::span<const std::byte>;

inline void append(Bytes& out, View more) {
    const std::size_t start = out.size();
    out.resize(start + more.size());
    if (!more.empty()) std::memcpy(out.data() + start, more.data(), more.size());
}

class Writer {
  public:
    explicit Writer(Bytes& out) : out_(out) {}

    template <class Number>
    void number(Number value) {
        static_assert(std::is_arithmetic_v<Number> || std::is_enum_v<Number>);
        bytes(std::as_bytes(std::span(&value, 1)));
    }
    void bytes(View v) { append(out_, v); }

    /// Cut or padded with zeros to exactly `size` bytes.
    void text(const std::string& value, std::size_t size) {
        const std::size_t start = out_.size();
        bytes(std::as_bytes(std::span(value.data(), std::min(size, value.size()))));
        out_.resize(start + size);
    }

  private:
    Bytes& out_;
};

class Reader {
  public:
    explicit Reader(View in) : in_(in) {}

    template <class Number>
    Number number() {
        static_assert(std::is_arithmetic_v<Number> || std::is_enum_v<Number>);
        Number value{};
        const View v = bytes(sizeof value);
        if (!v.empty()) std::memcpy(&value, v.data(), sizeof value);
        return value;
    }

    /// The next `size` bytes. If there are fewer: empty, and ok() is false from then on.
    View bytes(std::size_t size) {
        if (in_.size() < size) {
            ok_ = false;
            in_ = {};
            return {};
        }
        const View v = in_.first(size);
        in_ = in_.subspan(size);
        return v;
    }

    /// A padded text; unprintable characters become '?', because it ends up in messages on somebody's terminal.
    std::string text(std::size_t size) {
        std::string value;
        for (const std::byte b : bytes(size)) {
            const char c = static_cast<char>(b);
            if (c == '\0') break;
            value += c < ' ' || c == 127 ? '?' : c;
        }
        return value;
    }

    std::size_t left() const { return in_.size(); }
    bool ok() const { return ok_; }

  private:
    View in_;
    bool ok_ = true;
};

}  // namespace tutti::bootstrap
