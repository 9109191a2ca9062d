// For a test case, or one of its sections, that this machine can't run.
#pragma once

#include <iostream>
#include <string>

#include "harness/catch.hpp"

namespace tutti::harness {

/// Says that the test case cannot run here, and what is missing; the case then returns. tools/count_tests.py counts it
/// as skipped.
inline void skip(const std::string& missing) {
    std::cout << "\nskipped: " << Catch::getResultCapture().getCurrentTestName() << ": " << missing << std::endl;
}

}  // namespace tutti::harness
