#include "transport/plugin/requests.hpp"

#include "base/result.hpp"

namespace tutti::plugin {

Requests::Requests(const Connector& connector, Way way)
    : connector_(connector), plugin_(connector.plugin.get()), way_(way) {
    if (way_ == Way::in) listening_ = plugin_->listen(connector_.context.get(), connector_.device, handle_);
}

Requests::~Requests() {
    for (const auto& [base, memory] : memory_) plugin_->forget_memory(connection_, memory);
    if (connection_ != nullptr && way_ == Way::out) plugin_->close_send(connection_);
    if (connection_ != nullptr && way_ == Way::in) plugin_->close_receive(connection_);
    if (listening_ != nullptr) plugin_->close_listen(listening_);
}

bool Requests::open() {
    if (connection_ == nullptr)
        connection_ = way_ == Way::out ? plugin_->connect(connector_.context.get(), connector_.device, handle_)
                                       : plugin_->accept(listening_);
    return connection_ != nullptr;
}

void* Requests::memory(void* base, std::size_t size) {
    const auto known = memory_.find(base);
    if (known != memory_.end()) return known->second;
    return memory_.emplace(base, plugin_->register_memory(connection_, base, size)).first->second;
}

void* Requests::gpu_memory(std::span<std::byte> memory, const Fd& fd) {
    const auto known = memory_.find(memory.data());
    if (known != memory_.end()) return known->second;
    void* const handle = plugin_->register_gpu_memory(connection_, memory.data(), memory.size(), fd.get());
    return memory_.emplace(memory.data(), handle).first->second;
}

void Requests::add(void* data, std::size_t size, void* memory) {
    TUTTI_ASSERT(count_ < most);
    items_[(first_ + count_++) % most] = {data, size, memory, nullptr};
}

bool Requests::move() {
    bool moved = false;
    for (; under_way_ < count_; ++under_way_) {
        Item& item = items_[(first_ + under_way_) % most];
        item.request = way_ == Way::out ? plugin_->send(connection_, item.data, item.size, item.memory)
                                        : plugin_->receive(connection_, item.data, item.size, item.memory);
        if (item.request == nullptr) break;
        moved = true;
    }
    return moved;
}

bool Requests::take(std::size_t& size) {
    if (under_way_ == 0 || !plugin_->is_done(items_[first_].request, size)) return false;
    first_ = (first_ + 1) % most;
    --count_;
    --under_way_;
    return true;
}

}  // namespace tutti::plugin
