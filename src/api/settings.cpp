// The settings of the environment in effect, for callers to ask.
#include <vector>

#include "api/handles.hpp"
#include "base/config.hpp"
#include "base/log.hpp"
#include "base/per_thread.hpp"
#include "tutti/tutti.h"

using namespace tutti;

tuttiResult_t tuttiParamGet(const char* key, const char** value) {
    return guarded([&] {
        if (key == nullptr || value == nullptr)
            fail(tuttiInvalidArgument, "tuttiParamGet: %s is NULL", key == nullptr ? "key" : "value");
        struct Told {
            std::string text;
        };
        const std::optional<std::string> known = setting(key);
        if (!known) fail(tuttiInvalidArgument, "tuttiParamGet: %s is not one of docs/environment.md", key);
        std::string& text = of_this_thread<Told>().text;
        text = *known;
        *value = text.c_str();
    });
}

tuttiResult_t tuttiParamGetAllKeys(const char* const** keys, int* count) {
    return guarded([&] {
        if (keys == nullptr || count == nullptr)
            fail(tuttiInvalidArgument, "tuttiParamGetAllKeys: %s is NULL", keys == nullptr ? "keys" : "count");
        static const auto& all = *new const std::vector<const char*>([] {
            std::vector<const char*> names;
            for (const Variable& v : variables()) names.push_back(v.name);
            return names;
        }());
        *keys = all.data();
        *count = static_cast<int>(all.size());
    });
}

tuttiResult_t tuttiParamDumpAll(void) {
    return guarded([] {
        for (const Variable& v : variables()) log(Level::info, "%s=%s", v.name, setting(v.name).value_or("").c_str());
    });
}
