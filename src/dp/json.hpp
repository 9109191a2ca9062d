// JSON of checkpoints' files: strict, with errors that name the file and the field.
#pragma once

#include <cinttypes>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "base/result.hpp"

namespace tutti::dp {

using Json = nlohmann::json;

/// A field twice is an error, which parsers of JSON are free to overlook. Throws tuttiInvalidUsage.
inline Json parse_strictly(std::string_view words, const std::string& path) {
    std::vector<std::set<std::string>> open;
    const auto watch = [&](int, Json::parse_event_t event, const Json& value) {
        if (event == Json::parse_event_t::object_start) open.emplace_back();
        if (event == Json::parse_event_t::object_end) open.pop_back();
        if (event == Json::parse_event_t::key && !open.back().insert(value.get<std::string>()).second)
            fail(tuttiInvalidUsage, "tuttiDpLoad: '%s' is torn or was changed: it has '%s' twice", path.c_str(),
                 value.get<std::string>().c_str());
        return true;
    };
    try {
        return Json::parse(words, watch);
    } catch (const nlohmann::json::exception& e) {
        fail(tuttiInvalidUsage, "tuttiDpLoad: '%s' is torn or was changed, or is no checkpoint: %s", path.c_str(),
             e.what());
    }
}

/// A field of an object, of the kind that is expected there.
class Fields {
  public:
    Fields(const Json& object, const std::string& path) : object_(object), path_(path) {
        if (!object.is_object()) wrong("an object was expected where there is none");
    }
    const Json& at(const char* key) const {
        const auto found = object_.find(key);
        if (found == object_.end()) wrong(text("'%s' is missing", key));
        return *found;
    }
    bool has(const char* key) const { return object_.contains(key); }
    std::uint64_t number(const char* key, std::uint64_t most) const { return number(at(key), key, most); }
    std::uint64_t number(const Json& value, const char* what, std::uint64_t most) const {
        if (!value.is_number_unsigned() || value.get<std::uint64_t>() > most)
            wrong(text("'%s' is no number from 0 to %" PRIu64, what, most));
        return value.get<std::uint64_t>();
    }
    double real(const Json& value, const char* what) const {
        if (!value.is_number()) wrong(text("'%s' is no number", what));
        return value.get<double>();
    }
    std::string words(const Json& value, const char* what) const {
        if (!value.is_string()) wrong(text("'%s' is no text", what));
        return value.get<std::string>();
    }
    std::uint64_t hex(const Json& value, const char* what) const {
        const std::string digits = words(value, what);
        if (digits.size() != 16 || digits.find_first_not_of("0123456789abcdef") != std::string::npos)
            wrong(text("'%s' is no number of 16 hexadecimal digits", what));
        return std::stoull(digits, nullptr, 16);
    }
    const Json& object(const char* key) const {
        const Json& value = at(key);
        if (!value.is_object()) wrong(text("'%s' is no object", key));
        return value;
    }
    [[noreturn]] void wrong(const std::string& what) const {
        fail(tuttiInvalidUsage, "tuttiDpLoad: '%s' is torn or was changed, or is no checkpoint: %s", path_.c_str(),
             what.c_str());
    }

  private:
    const Json& object_;
    const std::string& path_;
};

inline std::string hex_of(std::uint64_t number) {
    return text("%016" PRIx64, number);
}

/// Throws tuttiInvalidArgument.
inline std::string dumped(const Json& json) {
    try {
        return json.dump();
    } catch (const nlohmann::json::exception& e) {
        fail(tuttiInvalidArgument, "tuttiDpSave: a name or a note is not UTF-8, which checkpoints need: %s", e.what());
    }
}

}  // namespace tutti::dp
