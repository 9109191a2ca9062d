// What meson.build compiles once for each large test program: half of the time of most of its files.
#include "harness/catch.hpp"
