#include "schedule/json_tree.hpp"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/result.hpp"

namespace tutti {
namespace {

/// Counts lines. The parser looks one character past a number: what ends a line still belongs to it.
struct Position {
    int line = 1;
    bool at_end = false;
};

/// What the parser reads from.
class Characters {
  public:
    using iterator_category = std::input_iterator_tag;
    using value_type = char;
    using difference_type = std::ptrdiff_t;
    using pointer = const char*;
    using reference = const char&;

    Characters(const char* at, Position* position) : at_(at), position_(position) {}
    reference operator*() const { return *at_; }
    Characters& operator++() {
        position_->line += position_->at_end;
        position_->at_end = *at_++ == '\n';
        return *this;
    }
    bool operator==(const Characters& other) const { return at_ == other.at_; }

  private:
    const char* at_;
    Position* position_;
};

/// Gets what the parser finds, piece by piece: the names of its functions are nlohmann's.
class Builder {
  public:
    using Kind = Json::Kind;
    using number_integer_t = nlohmann::json::number_integer_t;
    using number_unsigned_t = nlohmann::json::number_unsigned_t;
    using number_float_t = nlohmann::json::number_float_t;
    using string_t = nlohmann::json::string_t;
    using binary_t = nlohmann::json::binary_t;

    Builder(const std::string& file, const Position& position) : file_(file), position_(position) {}
    Json take() { return std::move(root_); }

    bool null() { return add(Kind::null), true; }
    bool boolean(bool value) { return add(Kind::boolean).flag = value, true; }
    bool number_integer(number_integer_t value) { return whole(value), true; }
    bool number_unsigned(number_unsigned_t value) {
        if (value > static_cast<number_unsigned_t>(INT64_MAX)) return number_float(static_cast<double>(value), "");
        return whole(static_cast<std::int64_t>(value)), true;
    }
    bool number_float(number_float_t value, const string_t&) { return add(Kind::fraction).fraction = value, true; }
    bool string(string_t& value) { return add(Kind::text).text = std::move(value), true; }
    bool binary(binary_t&) { return false; }  // text has none
    bool start_object(std::size_t) { return open(Kind::object); }
    bool end_object() { return open_.pop_back(), true; }
    bool start_array(std::size_t) { return open(Kind::array); }
    bool end_array() { return open_.pop_back(), true; }

    bool key(string_t& name) {
        std::vector<std::string>& keys = open_.back()->keys;
        if (keys.size() == most_fields) fail_at(file_, position_.line, text("more than %zu fields", most_fields));
        if (std::ranges::find(keys, name) != keys.end())
            fail_at(file_, position_.line, "the field '" + excerpt(name) + "' is here for the second time");
        keys.push_back(std::move(name));
        return true;
    }

    bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& error) {
        std::string reason =
            error.what();  // "[json.exception.parse_error.101] parse error at line 3, column 5: reason"
        reason.erase(0, reason.find("] ") + 2);
        if (reason.starts_with("parse error at ")) reason.erase(0, reason.find(": ") + 2);
        fail_at(file_, position_.line, "is not JSON: " + excerpt(reason));
    }

  private:
    /// Programs need half as many: so that nobody has to fear for the stack.
    static constexpr std::size_t most_levels = 16;
    /// They need fewer, too; all are compared with each other.
    static constexpr std::size_t most_fields = 32;

    Json& add(Kind kind) {
        Json& value = open_.empty() ? root_ : open_.back()->items.emplace_back();
        value.kind = kind;
        value.line = position_.line;
        return value;
    }
    void whole(std::int64_t value) {
        Json& added = add(Kind::whole);
        added.number = value;
        added.fraction = static_cast<double>(value);
    }
    bool open(Kind kind) {
        if (open_.size() == most_levels)
            fail_at(file_, position_.line, text("more than %zu brackets are open", most_levels));
        open_.push_back(&add(kind));  // stays where it is: its parent gets no other item before it is closed
        return true;
    }

    const std::string& file_;
    const Position& position_;
    Json root_;
    std::vector<Json*> open_;
};

}  // namespace

Json parse_json(std::string_view text, const std::string& file) {
    Position position;
    Builder builder(file, position);
    nlohmann::json::sax_parse(Characters(text.data(), &position), Characters(text.data() + text.size(), &position),
                              &builder);
    return builder.take();
}

void fail_at(const std::string& file, int line, const std::string& reason) {
    fail(tuttiInvalidUsage, "%s:%d: %s", file.c_str(), line, reason.c_str());
}

std::string excerpt(std::string_view words) {
    constexpr std::size_t most = 200;
    std::string s(words.substr(0, most));
    std::ranges::replace_if(
        s, [](unsigned char c) { return c < ' ' || c == 0x7f; }, '?');
    return words.size() > most ? s + "..." : s;
}

std::string escaped(std::string_view words) {
    std::string s = "\"";
    for (const char c : words)
        if (static_cast<unsigned char>(c) < ' ')
            s += text("\\u%04x", static_cast<unsigned>(c));
        else
            s.append(c == '"' || c == '\\' ? "\\" : "").push_back(c);
    return s + "\"";
}

}  // namespace tutti
