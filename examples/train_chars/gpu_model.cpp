#include "gpu_model.hpp"

#include <algorithm>
#include <stdexcept>

namespace {

constexpr int hidden = Shape::hidden, inputs = Shape::context * Shape::embedding;

enum : std::size_t { table, w1, b1, w2, b2, w3, b3 };  // in the order of weights_of()

}  // namespace

GpuModel::GpuModel(const Shape& shape, const Text& text, gpu::Stream stream, std::size_t most)
    : shape_(shape),
      stream_(stream),
      codes_(stream, text.codes),
      right_(stream.device, most),
      samples_(stream.device, most),
      x_(stream.device, most * inputs),
      h1_(stream.device, most * hidden),
      h2_(stream.device, most * hidden),
      scores_(stream.device, most * static_cast<std::size_t>(shape.characters)),
      d3_(stream.device, most * static_cast<std::size_t>(shape.characters)),
      d2_(stream.device, most * hidden),
      d1_(stream.device, most * hidden),
      d0_(stream.device, most * inputs),
      losses_(stream.device, most) {}

const std::size_t* GpuModel::bring(const std::vector<std::size_t>& samples) {
    constexpr std::size_t most = kernels::Samples::most;
    for (std::size_t at = 0; at < samples.size(); at += most) {
        kernels::Samples some;
        some.number = static_cast<int>(std::min(most, samples.size() - at));
        std::copy_n(&samples[at], some.number, some.samples);
        some.to = samples_.data() + at;
        gpu::run(stream_, some);
    }
    return samples_.data();
}

void GpuModel::pass(const std::size_t* samples, std::size_t count, const Owner& owner, double* loss, int copies) {
    if (count > samples_.count()) throw std::runtime_error("more samples than this model has memory for");
    const int rows = static_cast<int>(count), n = shape_.characters;
    owner.enter(0);
    gpu::run(stream_, kernels::Lookup{owner.values(table), codes_.data(), samples, x_.data(), right_.data(), rows});
    owner.leave(0);
    const auto times = [&](const gpu::Memory<float>& in, std::size_t w, std::size_t bias, const gpu::Memory<float>& out,
                           int from, int to, bool squash) {
        gpu::run(stream_,
                 kernels::Times{in.data(), owner.values(w), owner.values(bias), out.data(), rows, from, to, squash});
    };
    owner.enter(1);
    times(x_, w1, b1, h1_, inputs, hidden, true);
    owner.leave(1);
    owner.enter(2);
    times(h1_, w2, b2, h2_, hidden, hidden, true);
    owner.leave(2);
    owner.enter(3);
    times(h2_, w3, b3, scores_, hidden, n, false);
    gpu::run(stream_, kernels::LossGradient{scores_.data(), right_.data(), d3_.data(), losses_.data(), rows, n});
    gpu::run(stream_, kernels::SumLoss{losses_.data(), rows, copies, loss});
    if (owner.gradient)
        backward(samples, rows, owner);
    else
        owner.leave(3);
}

/// As soon as a layer's gradients are enqueued, they may travel.
void GpuModel::backward(const std::size_t* samples, int rows, const Owner& owner) {
    const int n = shape_.characters;
    const auto add = [&](const gpu::Memory<float>& in, const gpu::Memory<float>& d, std::size_t w, std::size_t bias,
                         int from, int to) {
        gpu::run(stream_, kernels::AddWeights{in.data(), d.data(), owner.gradient(w), rows, from, to});
        gpu::run(stream_, kernels::AddBias{d.data(), owner.gradient(bias), rows, to});
    };
    const auto back = [&](const gpu::Memory<float>& d, std::size_t w, const float* out, const gpu::Memory<float>& e,
                          int from, int to) {
        gpu::run(stream_, kernels::Back{d.data(), owner.values(w), out, e.data(), rows, from, to});
    };
    add(h2_, d3_, w3, b3, hidden, n);
    back(d3_, w3, h2_.data(), d2_, hidden, n);
    owner.ready(b3);
    owner.ready(w3);
    owner.leave(3);
    owner.enter(2);
    add(h1_, d2_, w2, b2, hidden, hidden);
    back(d2_, w2, h1_.data(), d1_, hidden, hidden);
    owner.ready(b2);
    owner.ready(w2);
    owner.leave(2);
    owner.enter(1);
    add(x_, d1_, w1, b1, inputs, hidden);
    back(d1_, w1, nullptr, d0_, inputs, hidden);
    owner.ready(b1);
    owner.ready(w1);
    owner.leave(1);
    owner.enter(0);
    float* const dtable = owner.gradient(table);
    const int* const codes = codes_.data();
    gpu::run(stream_, kernels::AddEmbedding{codes, samples, d0_.data(), dtable, rows, n});
    owner.ready(table);
    owner.leave(0);
}
