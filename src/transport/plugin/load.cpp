// Finds the file that a plugin's name stands for, and loads it.
#include <dlfcn.h>

#include <sstream>

#include "base/log.hpp"
#include "base/result.hpp"
#include "transport/plugin/plugin.hpp"

namespace tutti::plugin {
namespace {

constexpr int most_files = 14;

/// Loads a library, and never unloads it: plugins start threads and install handlers. nullptr if it can't be loaded;
/// the reason is then added to `why`.
void* load_file(const char* file, std::string& why) {
    void* const library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        const char* const said = dlerror();
        why += (why.empty() ? "" : "; ") + std::string(said == nullptr ? "dlopen failed" : said);
    }
    return library;
}

std::shared_ptr<Plugin> load_one(const std::string& name, std::string& why) {
    std::string missing, file = name;
    void* library = nullptr;
    if (name == "STATIC_PLUGIN") {
        library = load_file(nullptr, missing);
    } else if (library = load_file(name.c_str(), missing); library == nullptr && name.find('/') == std::string::npos) {
        file = "libnccl-net-" + name + ".so";
        library = load_file(file.c_str(), missing);
    }
    try {
        if (library != nullptr) return adapt(library, file);
    } catch (const Error& error) {
        missing = error.what();
    }
    why += (why.empty() ? "" : "; ") + missing;
    return nullptr;
}

}  // namespace

std::shared_ptr<Plugin> load(const std::string& value) {
    std::istringstream names(value);
    names.exceptions(std::ios::badbit);  // else a lack of memory would pass for the end of the list
    std::string name, why;
    for (int i = 0; i < most_files && std::getline(names, name, ',');) {
        if (name.empty()) continue;
        ++i;
        if (auto plugin = load_one(name, why)) {
            log(Level::info, "network plugin %s: %s, interface version %d", plugin->file().c_str(),
                plugin->name().c_str(), plugin->version());
            if (!why.empty()) log(Level::warn, "%s", why.c_str());
            return plugin;
        }
    }
    throw Error(tuttiSystemError, why.empty() ? "no network plugin is named" : why);
}

}  // namespace tutti::plugin
