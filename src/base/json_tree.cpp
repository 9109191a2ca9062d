#include "base/json_tree.hpp"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "base/result.hpp"

namespace tutti {
namespace {

/// Counts lines. The parser looks one character past a number, so a newline still belongs to the line that it ends.
struct Position {
    int line = 1;
    bool at_end = false;
};

/// The parser's input iterator, which advances the position.
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

/// Builds the tree from the parser's events. The names of its public functions are those of nlohmann's SAX interface.
class Builder {
  public:
    using Kind = Json::Kind;
    using number_integer_t = nlohmann::json::number_integer_t;
    using number_unsigned_t = nlohmann::json::number_unsigned_t;
    using number_float_t = nlohmann::json::number_float_t;
    using string_t = nlohmann::json::string_t;
    using binary_t = nlohmann::json::binary_t;

    Builder(const std::string& file, const Position& position, JsonLimits limits)
        : file_(file), position_(position), limits_(limits) {}
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
    bool binary(binary_t&) { return false; }  // does not occur in text
    bool start_object(std::size_t) { return names_.emplace_back(), open(Kind::object); }
    bool end_object() { return names_.pop_back(), open_.pop_back(), true; }
    bool start_array(std::size_t) { return open(Kind::array); }
    bool end_array() { return open_.pop_back(), true; }

    bool key(string_t& name) {
        std::vector<std::string>& keys = open_.back()->keys;
        if (keys.size() == limits_.fields) fail_at(file_, position_.line, text("more than %zu fields", limits_.fields));
        if (!names_.back().insert(name).second)
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
        if (open_.size() == limits_.levels)
            fail_at(file_, position_.line, text("more than %zu brackets are open", limits_.levels));
        open_.push_back(&add(kind));  // stays valid: the parent gets no other item before this one is closed
        return true;
    }

    const std::string& file_;
    const Position& position_;
    const JsonLimits limits_;
    Json root_;
    std::vector<Json*> open_;
    std::vector<std::set<std::string>> names_;  // by open object: the names so far, to reject duplicates
};

/// A number or a text as JSON. nlohmann's values of these have no children, so they are destroyed without allocating.
std::string leaf_text(const nlohmann::json& leaf) {
    try {
        return leaf.dump();
    } catch (const nlohmann::json::exception& e) {
        fail(tuttiInvalidArgument, "%s", e.what());
    }
}

/// Appends a value as text. indent: of its line; below 0: no line breaks.
void append(std::string& to, const Json& json, int indent) {
    using Kind = Json::Kind;
    if (json.kind == Kind::null || json.kind == Kind::boolean) {
        to += json.kind == Kind::null ? "null" : json.flag ? "true" : "false";
    } else if (json.kind == Kind::whole) {
        to += std::to_string(json.number);
    } else if (json.kind == Kind::fraction) {
        to += leaf_text(json.fraction);
    } else if (json.kind == Kind::text) {
        to += leaf_text(json.text);
    } else {
        const bool object = json.kind == Kind::object;
        std::vector<std::size_t> order(json.items.size());
        for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
        if (object) std::ranges::sort(order, {}, [&](std::size_t i) -> const std::string& { return json.keys[i]; });
        const int below = indent < 0 || order.empty() ? -1 : indent + 1;
        const auto new_line = [&](int depth) {
            if (below >= 0) to.append(1, '\n').append(static_cast<std::size_t>(depth), ' ');
        };
        to += object ? '{' : '[';
        for (std::size_t i = 0; i < order.size(); ++i) {
            if (i > 0) to += ',';
            new_line(below);
            if (object) to.append(leaf_text(json.keys[order[i]])).append(below < 0 ? ":" : ": ");
            append(to, json.items[order[i]], below);
        }
        new_line(indent);
        to += object ? '}' : ']';
    }
}

}  // namespace

Json parse_json(std::string_view text, const std::string& file, JsonLimits limits) {
    Position position;
    Builder builder(file, position, limits);
    nlohmann::json::sax_parse(Characters(text.data(), &position), Characters(text.data() + text.size(), &position),
                              &builder);
    return builder.take();
}

void Json::add(std::string name, Json value) {
    kind = Kind::object;
    keys.push_back(std::move(name));
    items.push_back(std::move(value));
}

const Json* Json::find(std::string_view name) const {
    const auto found = std::ranges::find(keys, name);
    return found == keys.end() ? nullptr : &items[static_cast<std::size_t>(found - keys.begin())];
}

Json json_whole(std::int64_t value) {
    Json json;
    json.kind = Json::Kind::whole;
    json.number = value;
    json.fraction = static_cast<double>(value);
    return json;
}

Json json_fraction(double value) {
    Json json;
    json.kind = Json::Kind::fraction;
    json.fraction = value;
    return json;
}

Json json_text(std::string value) {
    Json json;
    json.kind = Json::Kind::text;
    json.text = std::move(value);
    return json;
}

std::string text_of(const Json& json, bool indented) {
    std::string words;
    append(words, json, indented ? 0 : -1);
    return words;
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
