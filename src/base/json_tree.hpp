// JSON as a tree in which every value knows its line, so that a reader can say where something is wrong. It is
// destroyed without allocating, which nlohmann's tree is not: so it may go while an exception for want of memory is on
// its way.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

struct Json {
    enum class Kind { null, boolean, whole, fraction, text, array, object };

    Kind kind = Kind::null;
    int line = 0;  // on which it begins
    bool flag = false;
    std::int64_t number = 0;  // of a whole one
    double fraction = 0;      // of any number
    std::string text;
    std::vector<std::string> keys;  // of an object: the names of its items, each once
    std::vector<Json> items;

    /// Makes this an object, if it is none, with one more field; a name is added once.
    void add(std::string name, Json value);
};

/// What a text may have at most. Trees are read and destroyed recursively, so `levels` is what the stack must bear.
struct JsonLimits {
    std::size_t levels = 16;  // brackets that are open at a time
    std::size_t fields = 32;  // of an object
};

/// Throws Error(tuttiInvalidUsage), "file:line: reason". `file` is for the error alone.
Json parse_json(std::string_view text, const std::string& file, JsonLimits limits = {});

Json json_whole(std::int64_t value);
Json json_fraction(double value);
Json json_text(std::string value);

/// A tree as text, with the fields of objects sorted by name. indented: a line for each value. Throws
/// Error(tuttiInvalidArgument) with the parser's words: a text or a name is not UTF-8.
std::string text_of(const Json& json, bool indented = false);

/// A text as JSON has it, in quotes.
std::string escaped(std::string_view words);

[[noreturn]] void fail_at(const std::string& file, int line, const std::string& reason);

/// Words of a file for an error text: not too many, and none that a terminal would obey.
std::string excerpt(std::string_view words);

}  // namespace tutti
