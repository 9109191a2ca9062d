// In the place of the interpreter of PTX, where it is not built.
#include <stdexcept>

#include "ptx.hpp"

namespace tutti::ptx {

struct Module::Parts {};
struct Function {};

const std::vector<Parameter>& Kernel::parameters() const {
    throw std::runtime_error("there is no interpreter of PTX");
}
std::size_t Kernel::parameter_bytes() const {
    return 0;
}
unsigned Kernel::most_threads() const {
    return 0;
}
Module::Module(std::string) {
    throw std::runtime_error("there is no interpreter of PTX");
}
Module::~Module() = default;
Kernel Module::kernel(const std::string&) {
    throw std::runtime_error("there is no interpreter of PTX");
}
bool Module::has(const std::string&) const {
    return false;
}
void run_block(const Kernel&, const std::byte*, Dim, Dim, Dim, std::size_t, const Memory*) {
    throw std::runtime_error("there is no interpreter of PTX");
}

}  // namespace tutti::ptx
