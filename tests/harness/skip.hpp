// Skips test cases, or sections of them, that this machine can't run.
#pragma once

#include <iostream>
#include <string>

#include "harness/catch.hpp"

namespace tutti::harness {

/// Prints that the test case is skipped and what is missing. The caller then returns. tools/count_tests.py counts it as
/// skipped.
inline void skip(const std::string& missing) {
    std::cout << "\nskipped: " << Catch::getResultCapture().getCurrentTestName() << ": " << missing << std::endl;
}

}  // namespace tutti::harness
