// Strict JSON of checkpoint files, with errors that name the file and the field.
#pragma once

#include <cinttypes>
#include <string>

#include "base/json_tree.hpp"
#include "base/result.hpp"

namespace tutti::dp {

[[noreturn]] inline void refuse_torn(const std::string& path, const std::string& reason) {
    fail(tuttiInvalidUsage, "tuttiDpLoad: '%s' is torn or was changed, or is no checkpoint: %s", path.c_str(),
         reason.c_str());
}

/// Parses JSON with any number of fields; a duplicate field is an error. Throws tuttiInvalidUsage.
inline Json parse_strictly(std::string_view words, const std::string& path) {
    try {
        return parse_json(words, path, {.levels = 8, .fields = SIZE_MAX});
    } catch (const Error& e) {
        refuse_torn(path, e.what());
    }
}

/// Reads the fields of an object. Throws tuttiInvalidUsage if one is missing or not of the expected kind.
class Fields {
  public:
    Fields(const Json& object, const std::string& path) : object_(object), path_(path) {
        if (object.kind != Json::Kind::object) wrong("an object was expected where there is none");
    }
    const Json& at(const char* key) const {
        const Json* const found = object_.find(key);
        if (found == nullptr) wrong(text("'%s' is missing", key));
        return *found;
    }
    bool has(const char* key) const { return object_.find(key) != nullptr; }
    std::uint64_t number(const char* key, std::uint64_t most) const { return number(at(key), key, most); }
    std::uint64_t number(const Json& value, const char* what, std::uint64_t most) const {
        if (value.kind != Json::Kind::whole || value.number < 0 || static_cast<std::uint64_t>(value.number) > most)
            wrong(text("'%s' is no number from 0 to %" PRIu64, what, most));
        return static_cast<std::uint64_t>(value.number);
    }
    double real(const Json& value, const char* what) const {
        if (value.kind != Json::Kind::whole && value.kind != Json::Kind::fraction)
            wrong(text("'%s' is no number", what));
        return value.fraction;
    }
    const std::string& words(const Json& value, const char* what) const {
        if (value.kind != Json::Kind::text) wrong(text("'%s' is no text", what));
        return value.text;
    }
    std::uint64_t hex(const Json& value, const char* what) const {
        const std::string& digits = words(value, what);
        if (digits.size() != 16 || digits.find_first_not_of("0123456789abcdef") != std::string::npos)
            wrong(text("'%s' is no number of 16 hexadecimal digits", what));
        return std::stoull(digits, nullptr, 16);
    }
    const Json& object(const char* key) const {
        const Json& value = at(key);
        if (value.kind != Json::Kind::object) wrong(text("'%s' is no object", key));
        return value;
    }
    const Json& list(const char* key) const {
        const Json& value = at(key);
        if (value.kind != Json::Kind::array) wrong(text("'%s' is no list", key));
        return value;
    }
    [[noreturn]] void wrong(const std::string& what) const { refuse_torn(path_, what); }

  private:
    const Json& object_;
    const std::string& path_;
};

inline std::string hex_of(std::uint64_t number) {
    return text("%016" PRIx64, number);
}

/// The text of json. Throws tuttiInvalidArgument if a name or note is not UTF-8.
inline std::string dumped(const Json& json, bool indented = false) {
    try {
        return text_of(json, indented);
    } catch (const Error& e) {
        fail(tuttiInvalidArgument, "tuttiDpSave: a name or a note is not UTF-8, which checkpoints need: %s", e.what());
    }
}

}  // namespace tutti::dp
