// Multicast of CUDA. For cuda_virtual.hpp alone.
#pragma once

#include <cuda.h>

#include <optional>

#include "gpu/cuda_addresses.hpp"
#include "gpu/cuda_capture.hpp"
#include "gpu/multicast.hpp"

namespace tutti::gpu {

class CudaMulticast : public Multicast {
  public:
    /// how: what makes the handle (Physical), new or from a descriptor.
    template <class How>
    CudaMulticast(int device, std::size_t bytes, const How& how) : device_(device), bytes_(bytes) {
        static const auto add = driver_function<decltype(&cuMulticastAddDevice)>("cuMulticastAddDevice", 12010);
        const OnDevice on(device);
        const NotCaptured capture;
        object_.emplace(how);
        check(add(object_->handle(), device), "cuMulticastAddDevice");  // the runtime and the driver number alike
    }
    ~CudaMulticast() override {
        if_possible([&] {
            static const auto unbind = driver_function<decltype(&cuMulticastUnbind)>("cuMulticastUnbind", 12010);
            const OnDevice on(device_);
            const NotCaptured capture;
            addresses_.reset();
            if (bound_) unbind(object_->handle(), device_, 0, bytes_);
            object_.reset();
        });
    }

    Fd descriptor() const override {
        const OnDevice on(device_);
        const NotCaptured capture;
        return object_->descriptor();
    }
    std::byte* bind(const std::byte* memory) override {
        static const auto bind = driver_function<decltype(&cuMulticastBindMem)>("cuMulticastBindMem", 12010);
        const OnDevice on(device_);
        const NotCaptured capture;
        check(bind(object_->handle(), 0, Physical(memory).handle(), 0, bytes_, 0), "cuMulticastBindMem");
        bound_ = true;
        addresses_.emplace(bytes_);
        addresses_->map(*object_, 0, bytes_, {&device_, 1});
        return addresses_->first();
    }

  private:
    const int device_;
    const std::size_t bytes_;
    bool bound_ = false;
    std::optional<Physical> object_;
    std::optional<Addresses> addresses_;
};

/// Whether the device, and its driver, have multicast.
inline bool can_multicast(int device) {
    static const auto attribute = driver_function<decltype(&cuDeviceGetAttribute)>("cuDeviceGetAttribute");
    int can = 0;
    return attribute(&can, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, device) == CUDA_SUCCESS && can != 0;
}

}  // namespace tutti::gpu
