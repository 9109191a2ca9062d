#include "transport/verbs/library.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include "base/result.hpp"

namespace tutti::verbs {
namespace {

constexpr const char* file = "libibverbs.so.1";

template <class Function>
void find_if_there(void* handle, const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(handle, name));
}

template <class Function>
void find(void* handle, const char* name, Function& function) {
    find_if_there(handle, name, function);
    if (function == nullptr)
        fail(tuttiSystemError, "%s has no %s: it is too old, rdma-core 32 or later is needed", file, name);
}

Library open_library() {
    void* const handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);  // never closed: devices outlive all communicators
    if (handle == nullptr)
        fail(tuttiSystemError, "%s (it is in the package libibverbs1, and the adapters' part in ibverbs-providers)",
             dlerror());
    Library l{};
    find(handle, "ibv_get_device_list", l.get_device_list);
    find(handle, "ibv_free_device_list", l.free_device_list);
    find(handle, "ibv_get_device_name", l.get_device_name);
    find(handle, "ibv_open_device", l.open_device);
    find(handle, "ibv_close_device", l.close_device);
    find(handle, "ibv_query_device", l.query_device);
    find(handle, "ibv_query_port", l.query_port);
    find(handle, "_ibv_query_gid_ex", l.query_gid_ex);
    find(handle, "ibv_query_pkey", l.query_pkey);
    find(handle, "ibv_get_async_event", l.get_async_event);
    find(handle, "ibv_ack_async_event", l.ack_async_event);
    find(handle, "ibv_event_type_str", l.event_type_str);
    find(handle, "ibv_alloc_pd", l.alloc_pd);
    find(handle, "ibv_dealloc_pd", l.dealloc_pd);
    find(handle, "ibv_reg_mr_iova2", l.reg_mr);
    find(handle, "ibv_dereg_mr", l.dereg_mr);
    find(handle, "ibv_create_comp_channel", l.create_comp_channel);
    find(handle, "ibv_destroy_comp_channel", l.destroy_comp_channel);
    find(handle, "ibv_create_cq", l.create_cq);
    find(handle, "ibv_destroy_cq", l.destroy_cq);
    find(handle, "ibv_get_cq_event", l.get_cq_event);
    find(handle, "ibv_ack_cq_events", l.ack_cq_events);
    find(handle, "ibv_create_qp", l.create_qp);
    find(handle, "ibv_modify_qp", l.modify_qp);
    find(handle, "ibv_destroy_qp", l.destroy_qp);
    find_if_there(handle, "ibv_reg_dmabuf_mr", l.reg_dmabuf_mr);
    return l;
}

}  // namespace

const Library* load_library() {
    // To load what then finds no adapter takes half a millisecond of every rank's join.
    if (access("/sys/class/infiniband", F_OK) != 0) return nullptr;
    static const auto* const library = new const Library(open_library());
    return library;
}

}  // namespace tutti::verbs
