// A small network that guesses the next character of a text from the ones before: the forward and the backward pass by
// hand. (Y. Bengio et al.: A neural probabilistic language model. JMLR 2003.)
//
//     context of 12 characters -> embedding, 16 numbers each -> 128 tanh -> 128 tanh -> a probability per character
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

struct Shape {
    int characters;  // the size of the alphabet
    static constexpr int context = 12, embedding = 16, hidden = 128;
};

/// A parameter: its name, how many numbers, which layer ("unit") it is of, and how large its first values are.
struct Weights {
    const char* name;
    std::size_t count;
    int unit;
    float scale;
    std::size_t columns;  // of a matrix, row by row; of a vector: 1
};
std::vector<Weights> weights_of(const Shape& shape);

/// The first values; the same for everybody.
std::vector<float> first_values(const std::vector<Weights>& weights, std::size_t which);

/// A text as numbers.
struct Text {
    std::vector<int> codes;
    int characters = 0;
    static Text read(const std::string& path);  // throws std::runtime_error
    std::size_t samples() const { return codes.size() - Shape::context; }
};

/// What a pass needs of the parameters' owner. `which` is a parameter's place in weights_of().
struct Owner {
    std::function<const float*(std::size_t which)> values;
    std::function<float*(std::size_t which)> gradient;  // to be added to
    std::function<void(std::size_t which)> ready;       // its gradient is complete
    std::function<void(int unit)> enter, leave;         // a layer's parameters are needed; are not needed any more
};

/// The mean loss of some samples (nats per character). With owner.gradient, adds the gradient of that mean.
double pass(const Shape& shape, const Text& text, const std::vector<std::size_t>& samples, const Owner& owner);
