// Devices whose operations are enqueued on streams: CUDA's GPUs. All of it by torch's interface to any kind of device,
// so the extension needs no headers of CUDA's, and the same one serves a torch with CUDA and a torch without. What that
// interface lacks is said once, from Python: how Tutti, too, knows a stream.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <functional>

#include "torch.hpp"

namespace tutti_torch {

/// What a device's current stream is for Tutti; of CUDA the cudaStream_t.
using HandleOfCurrent = std::function<void*(int device)>;

/// From now on tensors on devices of this kind are taken.
void use_streams(c10::DeviceType type, HandleOfCurrent handle_of_current);
bool has_streams(c10::DeviceType type);
bool any_has_streams();

/// A stream of a device, one of torch's, for operations beside those of the program.
class SideStream {
  public:
    explicit SideStream(c10::Device device);

    c10::Device device() const { return stream_.device(); }
    c10::Stream stream() const { return stream_; }
    void* handle() const { return handle_; }

    /// What comes on it from now on runs after what the calling thread has enqueued on its current stream.
    void follow_current();
    /// Those tensors' memory is nobody else's before what is on this stream by now has ended, though they be freed.
    void keep(at::TensorList tensors) const;

  private:
    c10::impl::VirtualGuardImpl devices_;
    c10::Stream stream_;
    void* handle_;
    c10::Event before_;
};

}  // namespace tutti_torch
