// What kernels of two processes read and write by memory that they lend each other (traffic_test.cpp is about threads).
#include "expandable.hpp"
#include "on_hosts.hpp"
#include "processes.hpp"

using namespace tutti::on_gpu;

namespace {

constexpr const char* hidden_name = "a rank that counts what it moves";

/// Whether an all-reduce moves as much as this many times its buffer, both read and written, and some cells.
bool moves(const Rank& self, int* in, int* out, std::size_t count, std::uint64_t times) {
    CHECK(self.adds_up(in, out, count, 1));
    self.meet();
    tutti::on_hosts::reset_traffic();
    CHECK(self.adds_up(in, out, count, 2));
    const tutti::on_hosts::Traffic moved = tutti::on_hosts::traffic();
    const std::uint64_t least = times * count * sizeof(int), cells = 64 * 1024;
    UNSCOPED_INFO(moved.packs_read << " bytes read, " << moved.packs_written << " written, expected " << least);
    return moved.packs_read >= least && moved.packs_read < least + cells && moved.packs_written >= least &&
           moved.packs_written < least + cells;
}

/// Lent memory is read and written in place, through slots each byte is moved twice.
void count(int device) {
    Rank self(2, device);
    Expandable memory(4);
    memory.map(0, 4);
    const std::size_t count = memory.piece() / sizeof(int);
    int *const in = memory.half(1), *const out = memory.half(4);
    CHECK(moves(self, in, out, count, 2));
    const std::size_t allocations = tutti::on_hosts::allocations(device);
    void* handle = nullptr;
    require(tuttiCommRegister(self.comm, memory.at(0), 4 * memory.piece(), &handle));
    CHECK(self.adds_up(in, out, count, 0));
    CHECK(self.adds_up(in, out, count, 0));
    CHECK(moves(self, in, out, count, 1));
    require(tuttiCommDeregister(self.comm, handle));
    self.meet();
    CHECK(moves(self, in, out, count, 2));
    tuttiWindow_t window = nullptr;
    require(tuttiCommWindowRegister(self.comm, memory.at(0), 4 * memory.piece(), &window, TUTTI_WIN_COLL_SYMMETRIC));
    CHECK(moves(self, in, out, count, 1));
    self.meet();  // the put goes where the other rank has just looked for sums
    require(tuttiPutSignal(in, count, tuttiInt32, 1 - self.rank, window, memory.piece() * 5 / 2, 0, 0, 0, self.comm,
                           self.stream));
    const tuttiWaitSignalDesc_t one{1, 1 - self.rank, 0, 0};
    require(tuttiWaitSignal(1, &one, self.comm, self.stream));
    CHECK(self.downloaded(memory.half(5), count)[5] == 5 * (2 - self.rank) + 2);
    self.synchronize();
    require(tuttiCommWindowDeregister(self.comm, window));
    self.meet();
    memory.unmap(0, 4);
    CHECK(tutti::on_hosts::allocations(device) == allocations - 4);  // the library keeps none
}

}  // namespace

TEST_CASE(hidden_name, "[.]") {
    alarm(60);
    const bool apart = std::strcmp(std::getenv("TASK"), "two GPUs") == 0;
    count(apart ? std::atoi(std::getenv("RANK")) : 0);
}

TEST_CASE("processes move each byte of virtual memory that they lend each other once") {
    end_well(Processes(hidden_name, "one GPU"));
    end_well(Processes(hidden_name, "two GPUs", {"TUTTI_TEST_GPUS=2"}));
}
