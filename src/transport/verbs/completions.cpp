#include "transport/verbs/completions.hpp"

#include <fcntl.h>

#include "base/result.hpp"

namespace tutti::verbs {

Completions::Completions(const Port& port, int entries)
    : library_(port.device->library()),
      channel_(library_.create_comp_channel(port.device->context()), library_.destroy_comp_channel),
      queue_(nullptr, library_.destroy_cq) {
    if (!channel_ || fcntl(channel_->fd, F_SETFL, fcntl(channel_->fd, F_GETFL) | O_NONBLOCK) != 0)
        fail_errno("%s makes no channel for completions", port.text().c_str());
    const ibv_device_attr& limits = port.device->limits();
    queue_.reset(library_.create_cq(port.device->context(), entries, nullptr, channel_.get(), 0));
    if (!queue_)
        fail_errno("%s makes no completion queue of %d entries (it has %d queues of at most %d)", port.text().c_str(),
                   entries, limits.max_cq, limits.max_cqe);
    port.device->forget(queue_.get());
}

Completions::~Completions() {
    if (events_ > 0) library_.ack_cq_events(queue_.get(), events_);
}

Completions::Found Completions::look() {
    taken_ = 0;
    here_ = queue_->context->ops.poll_cq(queue_.get(), batch, batch_.data());
    if (here_ > 0) return Found::some;
    return std::exchange(here_, 0) == 0 ? Found::nothing : Found::error;
}

bool Completions::arm() {
    ibv_cq* queue = nullptr;
    for (void* unused = nullptr; library_.get_cq_event(channel_.get(), &queue, &unused) == 0;) ++events_;
    return queue_->context->ops.req_notify_cq(queue_.get(), 0) == 0;
}

}  // namespace tutti::verbs
