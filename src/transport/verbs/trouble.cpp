#include "transport/verbs/trouble.hpp"

#include <sys/resource.h>

#include <cerrno>
#include <cstring>

#include "base/result.hpp"

namespace tutti::verbs {

std::string explain(ibv_wc_status status, const std::string& device) {
    switch (status) {
        case IBV_WC_RETRY_EXC_ERR:
            return "the peer's port has not answered, however often " + device +
                   " repeated itself: a port, cable or switch is down, a firewall stops RoCE (UDP port 4791), or the "
                   "peer's process has stopped; see `ibv_devinfo` on both hosts";
        case IBV_WC_RNR_RETRY_EXC_ERR:
            return "the peer takes nothing more: it does not keep to the protocol";
        case IBV_WC_REM_ACCESS_ERR:
            return "the peer's adapter refuses a write to its memory: the peer has given the link up, or is of another "
                   "version";
        case IBV_WC_REM_INV_REQ_ERR:
        case IBV_WC_REM_OP_ERR:
            return "the peer's adapter could not do what " + device + " asked for; see the kernel's log there";
        case IBV_WC_LOC_PROT_ERR:
        case IBV_WC_LOC_LEN_ERR:
        case IBV_WC_LOC_ACCESS_ERR:
            return device + " could not read this rank's own memory; see the kernel's log here";
        case IBV_WC_LOC_QP_OP_ERR:
            return device + " could not send at all; see the kernel's log here";
        case IBV_WC_WR_FLUSH_ERR:
            return "the queue pair on " + device + " was stopped: an error on it came before";
        case IBV_WC_FATAL_ERR:
            return device + " has failed; see the kernel's log here";
        default:
            return text("%s reports an error of the connection (completion status %d)", device.c_str(),
                        static_cast<int>(status));
    }
}

std::string explain_registration(int error, std::size_t bytes, const std::string& device) {
    std::string why = text("%s can't register %zu bytes: %s", device.c_str(), bytes, std::strerror(error));
    if (error != ENOMEM && error != EPERM && error != EAGAIN) return why;
    rlimit limit{};
    getrlimit(RLIMIT_MEMLOCK, &limit);
    if (limit.rlim_cur == RLIM_INFINITY) return why;
    return why + text(
                     "; this process may lock %zu KiB (`ulimit -l`): `ulimit -l unlimited` before it starts, or "
                     "LimitMEMLOCK=infinity for the service that starts it",
                     static_cast<std::size_t>(limit.rlim_cur / 1024));
}

const char* name_of(ibv_port_state state) {
    switch (state) {
        case IBV_PORT_DOWN:
            return "down";
        case IBV_PORT_INIT:
            return "initializing (a subnet manager has not seen it)";
        case IBV_PORT_ARMED:
            return "armed";
        case IBV_PORT_ACTIVE:
            return "active";
        case IBV_PORT_ACTIVE_DEFER:
            return "deferred";
        default:
            return "in no known state";
    }
}

}  // namespace tutti::verbs
