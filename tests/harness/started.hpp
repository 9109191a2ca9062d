// Test cases of this program in processes of their own.
#pragma once

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "harness/harness.hpp"

namespace tutti::harness {

/// Runs one test case, which may be hidden, with these variables ("NAME=value") before those of this process.
inline pid_t started(const std::string& test, std::vector<std::string> variables) {
    std::vector<char*> environment;
    for (std::string& one : variables) environment.push_back(one.data());
    for (char** one = environ; *one != nullptr; ++one) environment.push_back(*one);
    environment.push_back(nullptr);
    std::string self = this_program(), name = test;
    char* arguments[] = {self.data(), name.data(), nullptr};
    pid_t pid = -1;
    if (posix_spawn(&pid, self.c_str(), nullptr, nullptr, arguments, environment.data()) != 0)
        throw std::runtime_error("posix_spawn");
    return pid;
}

/// Waits for its end. -1 if there is no such child.
inline int status_of(pid_t pid) {
    int status = -1;
    return waitpid(pid, &status, 0) == pid ? status : -1;
}

}  // namespace tutti::harness
