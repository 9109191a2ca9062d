// Tensors as Tutti sees them: blocks of memory, types and operations.
#pragma once

#include <initializer_list>
#include <optional>
#include <vector>

#include "communicator.hpp"

namespace tutti_torch {

using Tensors = std::vector<at::Tensor>;

/// Refuses tensors that are undefined, sparse, on a device that neither is the CPU nor has streams here, or on another
/// device than the first one.
void check(const Tensors& tensors, const char* operation);
/// Besides: refuses tensors of other types than the first one's.
void check_same_type(const Tensors& tensors, const char* operation);
/// The one tensor of a list, as c10d passes them. Refuses other numbers.
const at::Tensor& only(const Tensors& tensors, const char* operation);

/// A tensor that lies there, of the type and on the device of `like`.
at::Tensor lying_at(void* data, at::IntArrayRef sizes, const at::Tensor& like);

enum class Access { read, write, both };

/// Tensors one after another in one block of memory: their own where they lie like that, else memory of `spare`. Both
/// have to outlive it.
class Packed {
  public:
    Packed(at::TensorList tensors, Access access, Memory& spare);
    Packed(std::initializer_list<at::Tensor> copies, Access access, Memory& spare) = delete;

    void* data() const { return data_; }
    std::size_t bytes() const { return bytes_; }
    /// What an operation has written, back into the tensors.
    void put_back() const;

  private:
    bool lie_in_order();
    void copy(bool in) const;

    const at::TensorList tensors_;
    void* data_;  // never null
    std::size_t bytes_ = 0;
    bool copied_ = false;
};

/// How Tutti adds elements of this type up, if it can.
struct Arithmetic {
    tuttiDataType_t type;
    tuttiRedOp_t op;
};
std::optional<Arithmetic> arithmetic(at::ScalarType type, const c10d::ReduceOp& op);
/// The factor of PREMUL_SUM, one element of this type on the host; of other operations undefined.
at::Tensor factor(const c10d::ReduceOp& op, at::ScalarType type);
/// Refuses operations that neither Tutti nor torch has for the type: bits of fractions, the larger of complex numbers.
void check_arithmetic(at::ScalarType type, const c10d::ReduceOp& op, const char* operation);

/// The rows of a tensor made one, in their order, by torch: for what Tutti has no arithmetic for. Throws where torch
/// has none either.
at::Tensor fold(const at::Tensor& rows, const c10d::ReduceOp& op);

}  // namespace tutti_torch
