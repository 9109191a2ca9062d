// The network of model.hpp on a GPU: the same passes, enqueued on a stream.
#pragma once

#include "gpu.hpp"
#include "model.hpp"

class GpuModel {
  public:
    /// most: samples of a pass.
    GpuModel(const Shape& shape, const Text& text, gpu::Stream stream, std::size_t most);

    /// Samples as the GPU has them, until the next call; no more than a pass may have.
    const std::size_t* bring(const std::vector<std::size_t>& samples);

    /// As pass() of model.hpp. Samples, values and gradients are in the GPU's memory; owner's functions are called when
    /// what they speak of has been enqueued. The mean loss is written to `copies` numbers at `loss`.
    void pass(const std::size_t* samples, std::size_t count, const Owner& owner, double* loss, int copies = 1);

    gpu::Stream stream() const { return stream_; }

  private:
    void backward(const std::size_t* samples, int rows, const Owner& owner);

    Shape shape_;
    gpu::Stream stream_;
    gpu::Memory<int> codes_, right_;
    gpu::Memory<std::size_t> samples_;
    gpu::Memory<float> x_, h1_, h2_, scores_, d3_, d2_, d1_, d0_, losses_;
};
