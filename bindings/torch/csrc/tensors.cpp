#include "tensors.hpp"

#include <cstring>

#include "streams.hpp"

namespace tutti_torch {
namespace {

/// Something to point to where there are no elements.
alignas(64) char nothing[64];

std::optional<tuttiDataType_t> number_type(at::ScalarType type) {
    switch (type) {
        case at::kChar:
            return tuttiInt8;
        case at::kByte:
            return tuttiUint8;
        case at::kInt:
            return tuttiInt32;
        case at::kLong:
            return tuttiInt64;
        case at::kHalf:
            return tuttiFloat16;
        case at::kBFloat16:
            return tuttiBfloat16;
        case at::kFloat:
            return tuttiFloat32;
        case at::kDouble:
            return tuttiFloat64;
#if TUTTI_TORCH_AT_LEAST(2, 1)
        case at::kFloat8_e4m3fn:
            return tuttiFloat8e4m3;
        case at::kFloat8_e5m2:
            return tuttiFloat8e5m2;
#endif
#if TUTTI_TORCH_AT_LEAST(2, 3)
        case at::ScalarType::UInt32:
            return tuttiUint32;
        case at::ScalarType::UInt64:
            return tuttiUint64;
#endif
        default:
            return std::nullopt;
    }
}

std::optional<Arithmetic> truth_arithmetic(c10d::ReduceOp::RedOpType op) {
    switch (op) {
        case c10d::ReduceOp::SUM:
        case c10d::ReduceOp::MAX:
        case c10d::ReduceOp::BOR:
            return Arithmetic{tuttiUint8, tuttiMax};
        case c10d::ReduceOp::PRODUCT:
        case c10d::ReduceOp::MIN:
        case c10d::ReduceOp::BAND:
            return Arithmetic{tuttiUint8, tuttiMin};
        default:
            return std::nullopt;
    }
}

}  // namespace

void check(const Tensors& tensors, const char* operation) {
    for (const at::Tensor& tensor : tensors) {
        if (!tensor.defined()) fail(c10::str("tutti: ", operation, ": a tensor is undefined"));
        if (!tensor.device().is_cpu() && !has_streams(tensor.device().type()))
            fail(c10::str("tutti: ", operation, ": a tensor is on ", tensor.device(),
                          ", and the backend is for CPUs and CUDA's GPUs"));
        if (tensor.device() != tensors.front().device())
            fail(c10::str("tutti: ", operation, ": a tensor is on ", tensor.device(), " and another one on ",
                          tensors.front().device()));
        if (tensor.layout() != at::kStrided)
            fail(c10::str("tutti: ", operation, ": a tensor is ", tensor.layout(), ": make it dense (to_dense())"));
    }
}

void check_same_type(const Tensors& tensors, const char* operation) {
    check(tensors, operation);
    for (const at::Tensor& tensor : tensors)
        if (tensor.scalar_type() != tensors.front().scalar_type())
            fail(c10::str("tutti: ", operation, ": a tensor of ", tensor.scalar_type(), " among tensors of ",
                          tensors.front().scalar_type()));
}

const at::Tensor& only(const Tensors& tensors, const char* operation) {
    if (tensors.size() != 1) fail(c10::str("tutti: ", operation, " takes one tensor, not ", tensors.size()));
    check(tensors, operation);
    return tensors.front();
}

at::Tensor lying_at(void* data, at::IntArrayRef sizes, const at::Tensor& like) {
    return at::for_blob(data, sizes)
        .options(like.options().requires_grad(false))
        .target_device(like.device())
        .make_tensor();
}

Packed::Packed(at::TensorList tensors, Access access, Memory& spare) : tensors_(tensors), data_(nothing) {
    for (const at::Tensor& tensor : tensors_) bytes_ += tensor.nbytes();
    if (bytes_ == 0 && !spare.device().is_cpu()) data_ = spare.at_least(sizeof nothing);
    if (bytes_ == 0 || lie_in_order()) return;
    copied_ = true;
    data_ = spare.at_least(bytes_);
    if (access != Access::write) copy(true);
}

bool Packed::lie_in_order() {
    const char* next = nullptr;
    void* first = nullptr;
    for (const at::Tensor& tensor : tensors_) {
        if (tensor.nbytes() == 0) continue;
        const auto* at = static_cast<const char*>(tensor.data_ptr());
        if (!tensor.is_contiguous() || tensor.is_neg() || tensor.is_conj() || (next && at != next)) return false;
        if (!first) first = tensor.data_ptr();
        next = at + tensor.nbytes();
    }
    data_ = first;
    return true;
}

void Packed::put_back() const {
    if (copied_) copy(false);
}

void Packed::copy(bool in) const {
    auto* at = static_cast<char*>(data_);
    for (const at::Tensor& tensor : tensors_) {
        const std::size_t bytes = tensor.nbytes();
        if (bytes == 0) continue;
        if (tensor.is_contiguous() && !tensor.is_neg() && !tensor.is_conj() && tensor.device().is_cpu()) {
            if (in)
                std::memcpy(at, tensor.data_ptr(), bytes);
            else
                std::memcpy(tensor.data_ptr(), at, bytes);
        } else {
            at::Tensor block = lying_at(at, tensor.sizes(), tensor);
            if (in)
                block.copy_(tensor, true);
            else
                at::Tensor(tensor).copy_(block, true);
        }
        at += bytes;
    }
}

std::optional<Arithmetic> arithmetic(at::ScalarType type, const c10d::ReduceOp& op) {
    const c10d::ReduceOp::RedOpType kind = op;
    if (type == at::kBool) return truth_arithmetic(kind);
    const std::optional<tuttiDataType_t> number = number_type(type);
    if (!number) return std::nullopt;
    switch (kind) {
        case c10d::ReduceOp::SUM:
            return Arithmetic{*number, tuttiSum};
        case c10d::ReduceOp::AVG:
            return Arithmetic{*number, tuttiAvg};
        case c10d::ReduceOp::PRODUCT:
            return Arithmetic{*number, tuttiProd};
        case c10d::ReduceOp::MIN:
            return Arithmetic{*number, tuttiMin};
        case c10d::ReduceOp::MAX:
            return Arithmetic{*number, tuttiMax};
        case c10d::ReduceOp::PREMUL_SUM:
            return Arithmetic{*number, tuttiSum};
        default:
            return std::nullopt;
    }
}

at::Tensor factor(const c10d::ReduceOp& op, at::ScalarType type) {
    if (static_cast<c10d::ReduceOp::RedOpType>(op) != c10d::ReduceOp::PREMUL_SUM) return {};
#if TUTTI_TORCH_AT_LEAST(2, 0)
    if (const auto* given = dynamic_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get())) {
        const at::Tensor& tensor = given->tensor_factor;
        const at::Tensor one = tensor.defined() ? tensor : at::scalar_tensor(given->double_factor, at::kDouble);
        return one.to(at::kCPU, type).contiguous();
    }
#endif
    fail("tutti: PREMUL_SUM has no factor: make it with torch.distributed._make_nccl_premul_sum");
}

void check_arithmetic(at::ScalarType type, const c10d::ReduceOp& op, const char* operation) {
    const auto refuse = [&](const char* why) {
        fail(c10::str("tutti: ", operation, ": ", why, ", and the tensors are ", type));
    };
    switch (static_cast<c10d::ReduceOp::RedOpType>(op)) {
        case c10d::ReduceOp::SUM:
        case c10d::ReduceOp::PRODUCT:
            return;
        case c10d::ReduceOp::AVG:
            if (type == at::kBool) refuse("the average is for numbers");
            return;
        case c10d::ReduceOp::MIN:
        case c10d::ReduceOp::MAX:
            if (at::isComplexType(type)) refuse("the least and the greatest are for numbers that have an order");
            return;
        case c10d::ReduceOp::BAND:
        case c10d::ReduceOp::BOR:
        case c10d::ReduceOp::BXOR:
            if (!at::isIntegralType(type, true)) refuse("bitwise operations are for integers");
            return;
        case c10d::ReduceOp::PREMUL_SUM:
            if (!number_type(type)) refuse("a factor is for numbers that Tutti adds up");
            return;
        default:
            refuse("the operation is none of sum, avg, product, min, max, band, bor, bxor and premul_sum");
    }
}

at::Tensor fold(const at::Tensor& rows, const c10d::ReduceOp& op) try {
    const c10d::ReduceOp::RedOpType kind = op;
    at::Tensor all = rows[0].clone();
    for (std::int64_t r = 1; r < rows.size(0); ++r) {
        const at::Tensor row = rows[r];
        switch (kind) {
            case c10d::ReduceOp::SUM:
            case c10d::ReduceOp::AVG:
                all.add_(row);
                break;
            case c10d::ReduceOp::PRODUCT:
                all.mul_(row);
                break;
            case c10d::ReduceOp::MIN:
                all = at::minimum(all, row);
                break;
            case c10d::ReduceOp::MAX:
                all = at::maximum(all, row);
                break;
            case c10d::ReduceOp::BAND:
                all.bitwise_and_(row);
                break;
            case c10d::ReduceOp::BOR:
                all.bitwise_or_(row);
                break;
            case c10d::ReduceOp::BXOR:
                all.bitwise_xor_(row);
                break;
            default:
                break;  // check_arithmetic has refused it
        }
    }
    if (kind == c10d::ReduceOp::AVG)
        all = at::isComplexType(all.scalar_type()) ? all / rows.size(0) : at::div(all, rows.size(0), "trunc");
    return all;
} catch (const c10::Error& error) {  // all ranks have the rows, so the group goes on
    fail(c10::str("tutti: neither Tutti nor torch combines tensors of ", rows.scalar_type(),
                  " so: convert them first, as x.float() does (torch: ", error.what_without_backtrace(), ")"));
}

}  // namespace tutti_torch
