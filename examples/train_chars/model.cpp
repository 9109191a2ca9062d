#include "model.hpp"

#include <array>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace {

constexpr int context = Shape::context, embedding = Shape::embedding, hidden = Shape::hidden;
constexpr int inputs = context * embedding;

using Matrix = std::vector<float>;  // row by row

/// out[b][j] = bias[j] + sum over i of in[b][i] * w[i][j]
Matrix times(const Matrix& in, const float* w, const float* bias, int rows, int from, int to) {
    Matrix out(static_cast<std::size_t>(rows) * static_cast<std::size_t>(to));
    for (int b = 0; b < rows; ++b) {
        float* o = &out[static_cast<std::size_t>(b * to)];
        for (int j = 0; j < to; ++j) o[j] = bias[j];
        for (int i = 0; i < from; ++i) {
            const float x = in[static_cast<std::size_t>(b * from + i)];
            for (int j = 0; j < to; ++j) o[j] += x * w[i * to + j];
        }
    }
    return out;
}

/// The gradients of a layer: dw += in^T d, dbias += the sum of d's rows.
void add_gradients(const Matrix& in, const Matrix& d, float* dw, float* dbias, int rows, int from, int to) {
    Matrix w(static_cast<std::size_t>(from * to), 0.0f), bias(static_cast<std::size_t>(to), 0.0f);
    for (int b = 0; b < rows; ++b) {
        const float* e = &d[static_cast<std::size_t>(b * to)];
        for (int j = 0; j < to; ++j) bias[static_cast<std::size_t>(j)] += e[j];
        for (int i = 0; i < from; ++i) {
            const float x = in[static_cast<std::size_t>(b * from + i)];
            float* row = &w[static_cast<std::size_t>(i * to)];
            for (int j = 0; j < to; ++j) row[j] += x * e[j];
        }
    }
    for (std::size_t i = 0; i < w.size(); ++i) dw[i] += w[i];  // once per pass, so that passes add up in their order
    for (std::size_t j = 0; j < bias.size(); ++j) dbias[j] += bias[j];
}

/// d w^T, through the derivative of the tanh that made `out` (nullptr: there was none).
Matrix back(const Matrix& d, const float* w, const Matrix* out, int rows, int from, int to) {
    Matrix e(static_cast<std::size_t>(rows * from), 0.0f);
    for (int b = 0; b < rows; ++b)
        for (int i = 0; i < from; ++i) {
            float sum = 0;
            for (int j = 0; j < to; ++j) sum += d[static_cast<std::size_t>(b * to + j)] * w[i * to + j];
            const auto at = static_cast<std::size_t>(b * from + i);
            e[at] = out == nullptr ? sum : sum * (1 - (*out)[at] * (*out)[at]);
        }
    return e;
}

void squash(Matrix& m) {
    for (float& x : m) x = std::tanh(x);
}

/// Probabilities less what happened, over the number of samples: the gradient of the mean loss.
Matrix loss_gradient(const Matrix& scores, const std::vector<int>& right, int characters, double& loss) {
    Matrix d(scores.size());
    const auto rows = static_cast<float>(right.size());
    for (std::size_t b = 0; b < right.size(); ++b) {
        const float* s = &scores[b * static_cast<std::size_t>(characters)];
        float most = s[0], sum = 0;
        for (int j = 1; j < characters; ++j) most = std::max(most, s[j]);
        for (int j = 0; j < characters; ++j) sum += std::exp(s[j] - most);
        loss += (std::log(sum) + most - s[right[b]]) / rows;
        for (int j = 0; j < characters; ++j)
            d[b * static_cast<std::size_t>(characters) + static_cast<std::size_t>(j)] =
                (std::exp(s[j] - most) / sum - (j == right[b] ? 1.0f : 0.0f)) / rows;
    }
    return d;
}

}  // namespace

std::vector<Weights> weights_of(const Shape& shape) {
    const auto n = static_cast<std::size_t>(shape.characters);
    const auto size = [](float fan_in) { return std::sqrt(1.0f / fan_in); };
    return {{"embedding", n * embedding, 0, 1.0f, embedding},
            {"weights1", std::size_t{inputs} * hidden, 1, size(inputs), hidden},
            {"bias1", hidden, 1, 0.0f, 1},
            {"weights2", std::size_t{hidden} * hidden, 2, size(hidden), hidden},
            {"bias2", hidden, 2, 0.0f, 1},
            {"weights3", hidden * n, 3, size(hidden), n},
            {"bias3", n, 3, 0.0f, 1}};
}

std::vector<float> first_values(const std::vector<Weights>& weights, std::size_t which) {
    std::vector<float> values(weights[which].count);
    std::uint64_t state = 12345 + which;
    for (float& value : values) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        value = (static_cast<float>(state >> 40) * 0x1p-23f - 1.0f) * weights[which].scale;
    }
    return values;
}

Text Text::read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    const std::string all{std::istreambuf_iterator<char>(file), {}};
    if (all.size() <= context) throw std::runtime_error("'" + path + "' can't be read, or is too short");
    Text text;
    std::array<int, 256> code;
    code.fill(-1);
    for (const char c : all) {
        int& known = code[static_cast<unsigned char>(c)];
        if (known < 0) known = text.characters++;
        text.codes.push_back(known);
    }
    return text;
}

double pass(const Shape& shape, const Text& text, const std::vector<std::size_t>& samples, const Owner& owner) {
    enum { table, w1, b1, w2, b2, w3, b3 };
    const int rows = static_cast<int>(samples.size()), n = shape.characters;
    std::vector<int> right;
    Matrix x(samples.size() * inputs);
    owner.enter(0);
    const float* e = owner.values(table);
    for (std::size_t b = 0; b < samples.size(); ++b) {
        for (std::size_t t = 0; t < context; ++t)
            for (std::size_t k = 0; k < embedding; ++k)
                x[b * inputs + t * embedding + k] =
                    e[static_cast<std::size_t>(text.codes[samples[b] + t]) * embedding + k];
        right.push_back(text.codes[samples[b] + context]);
    }
    owner.leave(0);
    owner.enter(1);
    Matrix h1 = times(x, owner.values(w1), owner.values(b1), rows, inputs, hidden);
    squash(h1);
    owner.leave(1);
    owner.enter(2);
    Matrix h2 = times(h1, owner.values(w2), owner.values(b2), rows, hidden, hidden);
    squash(h2);
    owner.leave(2);
    owner.enter(3);
    double loss = 0;
    const Matrix d3 = loss_gradient(times(h2, owner.values(w3), owner.values(b3), rows, hidden, n), right, n, loss);
    if (!owner.gradient) {
        owner.leave(3);
        return loss;
    }
    // Backward: as soon as a layer's gradients are complete, they may travel.
    add_gradients(h2, d3, owner.gradient(w3), owner.gradient(b3), rows, hidden, n);
    const Matrix d2 = back(d3, owner.values(w3), &h2, rows, hidden, n);
    owner.ready(b3);
    owner.ready(w3);
    owner.leave(3);
    owner.enter(2);
    add_gradients(h1, d2, owner.gradient(w2), owner.gradient(b2), rows, hidden, hidden);
    const Matrix d1 = back(d2, owner.values(w2), &h1, rows, hidden, hidden);
    owner.ready(b2);
    owner.ready(w2);
    owner.leave(2);
    owner.enter(1);
    add_gradients(x, d1, owner.gradient(w1), owner.gradient(b1), rows, inputs, hidden);
    const Matrix d0 = back(d1, owner.values(w1), nullptr, rows, inputs, hidden);
    owner.ready(b1);
    owner.ready(w1);
    owner.leave(1);
    owner.enter(0);
    Matrix de(static_cast<std::size_t>(n) * embedding, 0.0f);
    for (std::size_t b = 0; b < samples.size(); ++b)
        for (std::size_t t = 0; t < context; ++t)
            for (std::size_t k = 0; k < embedding; ++k)
                de[static_cast<std::size_t>(text.codes[samples[b] + t]) * embedding + k] +=
                    d0[b * inputs + t * embedding + k];
    float* g = owner.gradient(table);
    for (std::size_t i = 0; i < de.size(); ++i) g[i] += de[i];
    owner.ready(table);
    owner.leave(0);
    return loss;
}
