// JSON as a tree in which every value knows its line, so that whoever reads it can say where something is wrong.
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
};

/// At most 16 brackets are open at a time, and an object has at most 32 fields. Throws Error(tuttiInvalidUsage),
/// "file:line: reason". `file` is for the error alone.
Json parse_json(std::string_view text, const std::string& file);

/// A text as JSON has it, in quotes.
std::string escaped(std::string_view words);

[[noreturn]] void fail_at(const std::string& file, int line, const std::string& reason);

/// Words of a file for an error text: not too many, and none that a terminal would obey.
std::string excerpt(std::string_view words);

}  // namespace tutti
