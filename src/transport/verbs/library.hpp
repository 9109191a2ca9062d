// libibverbs, opened at run time, so that one binary serves machines with and without InfiniBand. A build needs its
// headers. Functions that are inline there (posting, polling) are called through the device's table in ibv_context.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>

namespace tutti::verbs {

/// The functions of libibverbs. Tests put their own in.
struct Library {
    decltype(&::ibv_get_device_list) get_device_list;
    decltype(&::ibv_free_device_list) free_device_list;
    decltype(&::ibv_get_device_name) get_device_name;
    decltype(&::ibv_open_device) open_device;
    decltype(&::ibv_close_device) close_device;
    decltype(&::ibv_query_device) query_device;
    decltype(&::ibv_query_port) query_port;
    decltype(&::_ibv_query_gid_ex) query_gid_ex;
    decltype(&::ibv_query_pkey) query_pkey;
    decltype(&::ibv_get_async_event) get_async_event;
    decltype(&::ibv_ack_async_event) ack_async_event;
    decltype(&::ibv_event_type_str) event_type_str;
    decltype(&::ibv_alloc_pd) alloc_pd;
    decltype(&::ibv_dealloc_pd) dealloc_pd;
    decltype(&::ibv_reg_mr_iova2) reg_mr;  // drops optional access flags that the kernel does not know
    decltype(&::ibv_dereg_mr) dereg_mr;
    decltype(&::ibv_create_comp_channel) create_comp_channel;
    decltype(&::ibv_destroy_comp_channel) destroy_comp_channel;
    decltype(&::ibv_create_cq) create_cq;
    decltype(&::ibv_destroy_cq) destroy_cq;
    decltype(&::ibv_get_cq_event) get_cq_event;
    decltype(&::ibv_ack_cq_events) ack_cq_events;
    decltype(&::ibv_create_qp) create_qp;
    decltype(&::ibv_modify_qp) modify_qp;
    decltype(&::ibv_destroy_qp) destroy_qp;
    /// ibv_reg_dmabuf_mr, which rdma-core 34 added, so older headers lack it. nullptr if the library is older.
    ibv_mr* (*reg_dmabuf_mr)(ibv_pd*, std::uint64_t offset, std::size_t length, std::uint64_t iova, int fd, int access);
};

/// Owns an object of the library, with the function that destroys it.
template <class T>
using Owned = std::unique_ptr<T, int (*)(T*)>;

/// Opens this machine's libibverbs at the first call; it stays open. nullptr if the kernel knows no adapters
/// (no /sys/class/infiniband). Any thread may call it. Throws tuttiSystemError that says what is missing.
const Library* load_library();

}  // namespace tutti::verbs
