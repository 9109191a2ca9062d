// Where tests write files.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>

namespace tutti::harness {

/// A folder that goes with its files.
struct Folder {
    Folder() {
        char name[] = "/tmp/tutti-test-XXXXXX";
        if (mkdtemp(name) == nullptr) throw std::runtime_error("mkdtemp fails");
        path = name;
    }
    Folder(const Folder&) = delete;
    ~Folder() { std::filesystem::remove_all(path); }
    std::string path;
};

}  // namespace tutti::harness
