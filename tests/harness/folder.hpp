// A temporary folder for tests.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>

namespace tutti::harness {

/// Creates a folder in /tmp and removes it with its files on destruction.
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
