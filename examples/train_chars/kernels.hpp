// The network's arithmetic as GPUs do it: a `Work` is plain data, and its element(i) is what one thread does; elements
// need nothing of each other. Sums are added up in the order of model.cpp, so all that may differ from it are the last
// bits of exp, log and tanh. Pointers lead to memory of the GPU's; matrices lie row by row.
#pragma once

#include <cmath>
#include <cstddef>
#include <variant>

#include "model.hpp"

#ifdef __CUDACC__
#define ON_GPU __host__ __device__
#else
#define ON_GPU  // the tests run it on host threads
#endif

namespace kernels {

/// Samples, which travel with the launch: no copy that anything would wait for.
struct Samples {
    static constexpr int most = 480;  // a launch has 4 KB for its arguments
    std::size_t samples[most];
    int number;
    std::size_t* to;
    ON_GPU int count() const { return number; }
    ON_GPU void element(int i) const { to[i] = samples[i]; }
};

/// x: the embeddings of the characters of each sample, side by side. right: the character that follows.
struct Lookup {
    const float* table;
    const int* codes;
    const std::size_t* samples;
    float* x;
    int* right;
    int rows;
    ON_GPU int count() const { return rows * Shape::context; }
    ON_GPU void element(int i) const {
        const int b = i / Shape::context, t = i % Shape::context;
        const float* from = table + codes[samples[b] + static_cast<std::size_t>(t)] * Shape::embedding;
        for (int k = 0; k < Shape::embedding; ++k) x[i * Shape::embedding + k] = from[k];
        if (t == 0) right[b] = codes[samples[b] + Shape::context];
    }
};

/// out[b][j] = bias[j] + sum over i of in[b][i] * w[i][j], and the tanh of that
struct Times {
    const float *in, *w, *bias;
    float* out;
    int rows, from, to;
    bool squash;
    ON_GPU int count() const { return rows * to; }
    ON_GPU void element(int i) const {
        const int b = i / to, j = i % to;
        float sum = bias[j];
        for (int k = 0; k < from; ++k) sum += in[b * from + k] * w[k * to + j];
        out[i] = squash ? tanhf(sum) : sum;
    }
};

/// d: probabilities less what happened, over the number of rows. losses: of each row, over the same.
struct LossGradient {
    const float* scores;
    const int* right;
    float *d, *losses;
    int rows, characters;
    ON_GPU int count() const { return rows; }
    ON_GPU void element(int b) const {
        const float* s = scores + b * characters;
        const float n = static_cast<float>(rows);
        float most = s[0], sum = 0;
        for (int j = 1; j < characters; ++j) most = s[j] > most ? s[j] : most;
        for (int j = 0; j < characters; ++j) sum += expf(s[j] - most);
        losses[b] = (logf(sum) + most - s[right[b]]) / n;
        for (int j = 0; j < characters; ++j)
            d[b * characters + j] = (expf(s[j] - most) / sum - (j == right[b] ? 1.0f : 0.0f)) / n;
    }
};

/// The sum of losses, as `copies` numbers.
struct SumLoss {
    const float* losses;
    int rows, copies;
    double* to;
    ON_GPU int count() const { return copies; }
    ON_GPU void element(int i) const {
        double sum = 0;
        for (int b = 0; b < rows; ++b) sum += static_cast<double>(losses[b]);
        to[i] = sum;
    }
};

/// dw += in^T d
struct AddWeights {
    const float *in, *d;
    float* dw;
    int rows, from, to;
    ON_GPU int count() const { return from * to; }
    ON_GPU void element(int i) const {
        float sum = 0;
        for (int b = 0; b < rows; ++b) sum += in[b * from + i / to] * d[b * to + i % to];
        dw[i] += sum;
    }
};

/// dbias += the sum of d's rows
struct AddBias {
    const float* d;
    float* dbias;
    int rows, to;
    ON_GPU int count() const { return to; }
    ON_GPU void element(int j) const {
        float sum = 0;
        for (int b = 0; b < rows; ++b) sum += d[b * to + j];
        dbias[j] += sum;
    }
};

/// e = d w^T, through the derivative of the tanh that made `out` (nullptr: there was none)
struct Back {
    const float *d, *w, *out;
    float* e;
    int rows, from, to;
    ON_GPU int count() const { return rows * from; }
    ON_GPU void element(int i) const {
        const int b = i / from, k = i % from;
        float sum = 0;
        for (int j = 0; j < to; ++j) sum += d[b * to + j] * w[k * to + j];
        e[i] = out == nullptr ? sum : sum * (1 - out[i] * out[i]);
    }
};

/// dtable += d of the inputs, wherever a character was one of them
struct AddEmbedding {
    const int* codes;
    const std::size_t* samples;
    const float* d;
    float* dtable;
    int rows, characters;
    ON_GPU int count() const { return characters * Shape::embedding; }
    ON_GPU void element(int i) const {
        const int character = i / Shape::embedding, k = i % Shape::embedding;
        float sum = 0;
        for (int b = 0; b < rows; ++b)
            for (int t = 0; t < Shape::context; ++t)
                if (codes[samples[b] + static_cast<std::size_t>(t)] == character)
                    sum += d[(b * Shape::context + t) * Shape::embedding + k];
        dtable[i] += sum;
    }
};

using Work = std::variant<Samples, Lookup, Times, LossGradient, SumLoss, AddWeights, AddBias, Back, AddEmbedding>;

}  // namespace kernels
