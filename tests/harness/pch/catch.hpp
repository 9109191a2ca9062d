// What meson.build compiles once for the tests of all rooms: half of the time of most of their files. No file may count
// on it.
#include "harness/catch.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "harness/collective.hpp"
#include "harness/harness.hpp"
