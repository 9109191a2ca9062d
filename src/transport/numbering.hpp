// Where message numbers begin.
#pragma once

#include <cstdint>

namespace tutti {

/// The number of the first message of every FIFO on hosts. 0, except in tests that make numbers wrap around early. Set
/// it before the first communicator, to the same value in all processes of a job.
extern std::uint32_t first_message;

}  // namespace tutti
