// The host's arithmetic, for all memory that the host reaches.
#pragma once

#include "dp/backend.hpp"

namespace tutti::dp {

class HostBackend : public Backend {
  public:
    tuttiStream_t stream() const override { return nullptr; }
    bool reaches(const void* memory) const override;  // in gpu_backend.cpp
    void settle() override {}
    Mark mark() override { return nullptr; }
    void follow(const Mark&) override {}
    void copy(void* to, const void* from, std::size_t bytes) override;
    void zero(DataType type, void* values, std::size_t count) override;
    void convert(DataType to_type, void* to, DataType from_type, const void* from, std::size_t count) override;
    void add(DataType into_type, void* into, DataType from_type, const void* from, std::size_t count) override;
    void multiply(DataType type, void* values, std::size_t count, double factor) override;
    void divide(DataType type, void* values, std::size_t count, int divisor) override;
    void update(const Update& how, const Piece& piece, DataType data_type, void* weights, DataType grad_type,
                const void* gradients, const States& states) override;
    double sum_of_squares(std::span<const Run> runs) override;
    std::size_t first_bad(std::span<const Run> runs) override;
    void largest(const float* values, std::size_t count, float* into) override;
    void scale(float* values, std::size_t count, const float* largest, int ranks, bool back) override;
};

}  // namespace tutti::dp
