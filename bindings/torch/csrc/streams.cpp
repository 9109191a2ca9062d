#include "streams.hpp"

#include <map>
#include <mutex>

#include "communicator.hpp"

namespace tutti_torch {
namespace {

struct Known {
    std::mutex mutex;
    std::map<c10::DeviceType, HandleOfCurrent> handles;
};
Known& known() {
    static auto* const all = new Known;  // Python's functions are not freed after Python
    return *all;
}

void* handle_of(c10::Stream stream) {
    HandleOfCurrent handle_of_current;
    {
        const std::lock_guard<std::mutex> lock(known().mutex);
        handle_of_current = known().handles.at(stream.device_type());
    }
    const c10::StreamGuard current(stream);
    return handle_of_current(stream.device_index());
}

}  // namespace

void use_streams(c10::DeviceType type, HandleOfCurrent handle_of_current) {
    const std::lock_guard<std::mutex> lock(known().mutex);
    known().handles[type] = std::move(handle_of_current);
}

bool has_streams(c10::DeviceType type) {
    const std::lock_guard<std::mutex> lock(known().mutex);
    return known().handles.count(type) != 0;
}

bool any_has_streams() {
    const std::lock_guard<std::mutex> lock(known().mutex);
    return !known().handles.empty();
}

SideStream::SideStream(c10::Device device)
    : devices_(device.type()),
      stream_(devices_.getStreamFromGlobalPool(device, true)),  // urgent: others wait for what is communicated
      handle_(handle_of(stream_)),
      before_(device.type()) {}

void SideStream::follow_current() {
    before_.record(devices_.getStream(device()));
    before_.block(stream_);
}

void SideStream::keep(at::TensorList tensors) const {
    for (const at::Tensor& tensor : tensors)
        if (tensor.has_storage()) devices_.recordDataPtrOnStream(tensor.storage().data_ptr(), stream_);
}

}  // namespace tutti_torch
