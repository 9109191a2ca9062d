// JSON as a tree in which every value knows its line, so that errors can name it. Unlike nlohmann's tree it is
// destroyed without allocating, so that it can be unwound by a std::bad_alloc.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

struct Json {
    enum class Kind { null, boolean, whole, fraction, text, array, object };

    Kind kind = Kind::null;
    int line = 0;  // of the text, on which the value begins
    bool flag = false;
    std::int64_t number = 0;  // if kind is whole
    double fraction = 0;      // if kind is whole or fraction
    std::string text;
    std::vector<std::string> keys;  // of an object: the names of its items, unique
    std::vector<Json> items;

    /// Appends a field and makes this an object. The caller must not add a name twice.
    void add(std::string name, Json value);

    /// A field of an object; nullptr if it has none of this name.
    const Json* find(std::string_view name) const;
};

/// Limits of a text that is parsed. Trees are read and destroyed recursively, so `levels` bounds the use of the stack.
struct JsonLimits {
    std::size_t levels = 16;  // of nested brackets
    std::size_t fields = 32;  // of an object
};

/// Parses a text. Throws Error(tuttiInvalidUsage), "file:line: reason"; `file` is used for that alone.
Json parse_json(std::string_view text, const std::string& file, JsonLimits limits = {});

Json json_whole(std::int64_t value);
Json json_fraction(double value);
Json json_text(std::string value);

/// Writes a tree as text, with the fields of objects sorted by name. indented: one line for each value. Throws
/// Error(tuttiInvalidArgument) if a text or a name is not UTF-8.
std::string text_of(const Json& json, bool indented = false);

/// A JSON string: quoted and escaped.
std::string escaped(std::string_view words);

/// Throws Error(tuttiInvalidUsage), "file:line: reason".
[[noreturn]] void fail_at(const std::string& file, int line, const std::string& reason);

/// Text from a file for an error message: cut after 200 characters, with control characters replaced by '?'.
std::string excerpt(std::string_view words);

}  // namespace tutti
