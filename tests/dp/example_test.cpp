// The network of examples/train_chars on (emulated) GPUs: the same passes as on CPUs.
#include <algorithm>
#include <deque>
#include <string>

#include "../../examples/train_chars/gpu_model.hpp"
#include "harness/catch.hpp"

namespace {

Text some_text() {
    const std::string words = "whose woods these are i think i know, his house is in the village though; he will not";
    Text text;
    for (const char c : words + words) text.codes.push_back(c % 31);
    text.characters = 31;
    return text;
}

/// What passes leave behind: gradients, and in which order the owner heard what.
struct Passes {
    std::vector<std::vector<float>> gradients;
    std::vector<std::string> heard;
    std::vector<double> losses;
};

struct Network {
    Text text = some_text();
    Shape shape{text.characters};
    std::vector<Weights> weights = weights_of(shape);
    const std::vector<std::vector<std::size_t>> batches = {{0, 5, 17, 3, 40, 41, 99}, {1, 2, 99}};

    Owner owner(Passes& passes, const std::vector<float*>& values, const std::vector<float*>& gradients) const {
        Owner o;
        o.values = [&](std::size_t w) { return static_cast<const float*>(values[w]); };
        o.gradient = [&](std::size_t w) { return gradients[w]; };
        o.ready = [&](std::size_t w) { passes.heard.push_back("ready " + std::to_string(w)); };
        o.enter = [&](int unit) { passes.heard.push_back("enter " + std::to_string(unit)); };
        o.leave = [&](int unit) { passes.heard.push_back("leave " + std::to_string(unit)); };
        return o;
    }

    Passes on_cpu() const {
        Passes passes;
        std::vector<std::vector<float>> first;
        std::vector<float*> values, gradients;
        for (const Weights& w : weights) passes.gradients.emplace_back(w.count, 0.5f);
        for (std::size_t w = 0; w < weights.size(); ++w) first.push_back(first_values(weights, w));
        for (std::size_t w = 0; w < weights.size(); ++w) {
            values.push_back(first[w].data());
            gradients.push_back(passes.gradients[w].data());
        }
        Owner o = owner(passes, values, gradients);
        for (const auto& batch : batches) passes.losses.push_back(pass(shape, text, batch, o));
        o.gradient = nullptr;
        passes.losses.push_back(pass(shape, text, batches[0], o));
        return passes;
    }

    Passes on_gpu(gpu::Stream stream) const {
        Passes passes;
        std::deque<gpu::Memory<float>> values, gradients;
        std::vector<float*> at_values, at_gradients;
        for (std::size_t w = 0; w < weights.size(); ++w) {
            at_values.push_back(values.emplace_back(stream, first_values(weights, w)).data());
            at_gradients.push_back(gradients.emplace_back(stream, std::vector<float>(weights[w].count, 0.5f)).data());
        }
        const gpu::Memory<double> losses(stream.device, 4);
        GpuModel model(shape, text, stream, 7);
        Owner o = owner(passes, at_values, at_gradients);
        for (std::size_t i = 0; i < 2; ++i)
            model.pass(model.bring(batches[i]), batches[i].size(), o, losses.data() + i);
        o.gradient = nullptr;
        model.pass(model.bring(batches[0]), batches[0].size(), o, losses.data() + 2, 2);
        passes.losses.resize(4);
        gpu::download(stream, passes.losses.data(), losses.data(), 4 * sizeof(double));
        REQUIRE(passes.losses[2] == passes.losses[3]);
        passes.losses.pop_back();
        for (std::size_t w = 0; w < weights.size(); ++w) {
            passes.gradients.emplace_back(weights[w].count);
            gpu::download(stream, passes.gradients[w].data(), at_gradients[w], weights[w].count * sizeof(float));
        }
        return passes;
    }
};

}  // namespace

TEST_CASE("Example: passes on a GPU have the bits of passes on a CPU, and what is ready when") {
    const Network network;
    std::string why;
    REQUIRE(gpu::count(2, why) > 1);
    const gpu::Stream stream = gpu::make_stream(1);
    const Passes here = network.on_cpu(), there = network.on_gpu(stream);
    REQUIRE(there.losses == here.losses);
    REQUIRE(there.heard == here.heard);
    REQUIRE(there.gradients == here.gradients);
    for (const auto& gradient : here.gradients)  // or nothing was added to it
        REQUIRE(std::count(gradient.begin(), gradient.end(), 0.5f) < static_cast<long>(gradient.size()));
    gpu::destroy(stream);
}

TEST_CASE("Example: samples travel with as many launches as they need") {
    const Network network;
    const gpu::Stream stream = gpu::make_stream(0);
    std::vector<std::size_t> many;
    for (std::size_t i = 0; i < 2 * kernels::Samples::most + 1; ++i) many.push_back(i * 7 % 100);
    {
        GpuModel model(network.shape, network.text, stream, many.size());
        std::vector<std::size_t> there(many.size());
        gpu::download(stream, there.data(), model.bring(many), many.size() * sizeof many[0]);
        REQUIRE(there == many);
        Passes none;
        const Owner nobody = network.owner(none, {}, {});
        REQUIRE_THROWS_WITH(model.pass(nullptr, many.size() + 1, nobody, nullptr),
                            Catch::Matchers::Contains("more samples"));
    }
    gpu::destroy(stream);
}
