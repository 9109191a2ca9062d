// Where message numbers begin.
#pragma once

#include <cstdint>

namespace tutti {

/// The number of the first message of every FIFO on hosts. 0, except in tests that make numbers wrap around early. Set
/// it before the first communicator, to the same value in all processes of a job. At most 2^32 - 17: the cells of FIFOs
/// outside arenas (faulty.cpp) hold turn 0, so each has to be written once before a message has that turn.
extern std::uint32_t first_message;

}  // namespace tutti
