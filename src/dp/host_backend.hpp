// Arithmetic on the host, for all memory that the host can access.
#pragma once

#include <cstring>

#include "dp/backend.hpp"
#include "dp/numbers.hpp"

namespace tutti::dp {

class HostBackend : public Backend {
  public:
    tuttiStream_t stream() const override { return nullptr; }
    bool reaches(const void* memory) const override;  // in gpu_backend.cpp
    void settle() override {}
    Mark mark() override { return nullptr; }
    void follow(const Mark&) override {}
    void copy(void* to, const void* from, std::size_t bytes) override {
        if (bytes > 0 && to != from) std::memcpy(to, from, bytes);
    }
    void zero(DataType type, void* values, std::size_t count) override {
        if (count > 0) std::memset(values, 0, count * size_of(type));
    }
    void convert(DataType to_type, void* to, DataType from_type, const void* from, std::size_t count) override {
        dp::convert(to_type, to, from_type, from, count);
    }
    void add(DataType into_type, void* into, DataType from_type, const void* from, std::size_t count) override {
        dp::add(into_type, into, from_type, from, count);
    }
    void multiply(DataType type, void* values, std::size_t count, double factor) override {
        dp::multiply(type, values, count, factor);
    }
    void divide(DataType type, void* values, std::size_t count, int divisor) override {
        dp::divide(type, values, count, divisor);
    }
    void clamp(DataType type, void* values, std::size_t count, double limit) override {
        dp::clamp(type, values, count, limit);
    }
    void update(const Update& how, const Piece& piece, DataType data_type, void* weights, DataType grad_type,
                const void* gradients, const States& states) override {
        dp::update(how, piece, data_type, weights, grad_type, gradients, states);
    }
    void add_squares(std::span<const Run> runs, Squares& into) override {
        for (const Run& run : runs) dp::add_squares(run.type, run.at, run.count, run.whole, into);
    }
    std::size_t first_bad(std::span<const Run> runs) override {
        for (std::size_t i = 0; i < runs.size(); ++i)
            if (dp::first_bad(runs[i].type, runs[i].at, runs[i].count) < runs[i].count) return i;
        return runs.size();
    }
    void largest(const float* values, std::size_t count, float* into) override {
        *into = largest_magnitude(values, count);
    }
    void scale(float* values, std::size_t count, const float* largest, int ranks, bool back) override {
        const double factor = fp8_scale(*largest, ranks);
        dp::multiply(DataType::float32, values, count, back ? 1 / factor : factor);
    }
};

}  // namespace tutti::dp
