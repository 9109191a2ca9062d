// One thread's part in the measurements: its ranks' buffers and streams, the timed loop, the check.
#pragma once

#include <vector>

#include "buffer.hpp"
#include "collectives.hpp"
#include "image.hpp"
#include "report.hpp"
#include "world.hpp"

namespace perf {

/// Bytes of a buffer: the largest message, and room to shift the smaller ones, so that caches don't lie.
std::size_t buffer_bytes(const Options& options, int ranks);

class Worker {
  public:
    /// report: of the process's first thread, else nullptr.
    Worker(World& world, const Options& options, const Collective& collective, Report* report, int thread);
    ~Worker();

    void run();

    /// Of the results of this thread's first rank on random data (options.checksum): FNV-1a, 64 bits.
    std::uint64_t checksum() const { return checksum_; }

  private:
    struct Member {
        int rank;
        int device;            // of CUDA; -1: the CPU
        tuttiComm_t comms[2];  // of Tutti; of its rival, if there is one
        tuttiStream_t stream;
        tuttiRedOp_t ops[2];
        Buffer send;
        Buffer receive;
        std::vector<void*> registrations;    // of tuttiCommRegister
        std::vector<tuttiWindow_t> windows;  // in their place
    };

    /// What a row's messages look like.
    struct Row {
        tuttiDataType_t type;
        Op op;
        int root;
        Shape shape;
        std::size_t bytes;  // of the larger side: the size that is printed, and the shift from operation to operation
    };

    void register_buffers();
    void run_all_roots(tuttiDataType_t type, Op op);
    void run_sizes(tuttiDataType_t type, Op op, int root);
    Row row_of(std::size_t bytes, tuttiDataType_t type, Op op, int root) const;
    void create_ops(tuttiDataType_t type, Op op);
    void destroy_ops(Op op);

    void warm_up(const Row& row);
    std::vector<Measurement> measure(const Row& row, bool in_place);
    double time(const Row& row, bool in_place, int count, std::vector<double>& iterations);
    std::byte* start(const Buffer& buffer, tuttiDataType_t type) const;
    void issue(const Row& row, bool in_place, std::size_t offset);
    void complete();
    void complete(const Member& member);
    std::vector<const Member*> streams() const;
    double time_graphs(const Row& row, bool in_place);
    double averaged(double value);
    void average_iterations(std::vector<double>& iterations);

    double wrong_elements(const Row& row, bool in_place);
    double largest_error(const Row& row, bool in_place);

    const Library& library() const { return *libraries_[side_]; }

    World& world_;
    const Options& options_;
    std::vector<const Library*> libraries_;  // Tutti, and its rival
    std::size_t side_ = 0;                   // whose turn it is
    const Collective& collective_;
    Report* report_;
    int thread_;
    std::vector<Member> members_;
    std::uint64_t seed_ = 0;
    std::uint64_t checksum_ = 14695981039346656037u;
    int complaints_ = 0;
};

}  // namespace perf
