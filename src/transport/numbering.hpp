// Where message numbers begin.
#pragma once

#include <cstdint>

namespace tutti {

/// The number of the first message of every FIFO on hosts. 0, except in tests in which numbers are soon to wrap around.
/// Set it before the first communicator, to the same in all processes of a job. At most 2^32 - 17: a cell that nobody
/// has written holds turn 0, so each has to be written before a message has that turn.
extern std::uint32_t first_message;

}  // namespace tutti
