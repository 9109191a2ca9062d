// Ranks on emulated GPUs in processes of their own: the test program starts itself again with the name of a hidden
// test; where the ranks meet comes by the launchers' variables.
#pragma once

#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/os.hpp"
#include "base/result.hpp"
#include "bootstrap/interfaces.hpp"
#include "harness/collective.hpp"
#include "harness/emulated_gpus.hpp"
#include "harness/harness.hpp"
#include "harness/started.hpp"
#include "transport/net_plugins.hpp"

namespace tutti {

inline constexpr const char* hidden_name = "a GPU rank in a process of its own";

class Processes {
  public:
    /// task: what the hidden test does. where: "one GPU"; "joined GPUs": one each; "GPUs": without peer access;
    /// "CPU": rank 1 is on one; "hosts": likewise, and each rank believes to be on a host of its own.
    Processes(int ranks, const std::string& task, const std::string& where = "one GPU",
              const std::string& transport = "") {
        const std::string port = text("%d", 20000 + getpid() % 12000);  // the kernel deals out others
        for (int rank = 0; rank < ranks; ++rank) {
            std::vector<std::string> variables{text("RANK=%d", rank),
                                               text("WORLD_SIZE=%d", ranks),
                                               text("LOCAL_RANK=%d", rank),
                                               text("LOCAL_WORLD_SIZE=%d", ranks),
                                               "MASTER_ADDR=127.0.0.1",
                                               "MASTER_PORT=" + port,
                                               "TASK=" + task,
                                               "WHERE=" + where};
            if (task.starts_with("order")) variables.push_back("TUTTI_LAUNCH_ORDER_IMPLICIT=1");
            if (!transport.empty()) variables.push_back("TUTTI_TRANSPORT=" + transport);
            if (where == "hosts") {
                bootstrap::Address here = bootstrap::rendezvous_interface();
                here.port = 0;
                const std::string name = here.text();  // with its port, after a colon
                variables[2] = "LOCAL_RANK=0", variables[3] = "LOCAL_WORLD_SIZE=1";
                variables[4] = "MASTER_ADDR=" + name.substr(0, name.rfind(':'));
                variables.push_back(text("TUTTI_HOSTID=host%d", rank));
                variables.push_back("TUTTI_SECRET=" + std::string(64, '7'));
            }
            if (transport == "plugin") variables.push_back("TUTTI_NET_PLUGIN=" NET_PLUGIN_11);
            pids_.push_back(harness::started(hidden_name, std::move(variables)));
        }
    }
    void kill(std::size_t rank) { ::kill(pids_[rank], SIGKILL); }
    int wait(std::size_t rank) { return harness::status_of(pids_[rank]); }

  private:
    std::vector<pid_t> pids_;
};

/// What the hidden test is, and works with.
struct Self {
    std::string task = std::getenv("TASK"), where = std::getenv("WHERE");
    int number = std::atoi(std::getenv("RANK"));
    bool on_cpu = (where == "CPU" || where == "hosts") && number == 1;
    int device = where == "one GPU" ? 0 : number;
    harness::EmulatedGpus gpus{where == "one GPU" ? 1 : 4, 8, 2, where == "joined GPUs"};
    void* stream = on_cpu ? nullptr : gpus.make_stream(device);
    tuttiComm_t comm = nullptr;
    int rank = 0, ranks = 0;

    Self() {
        gpu::use_gpus(&gpus);
        tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
        config.device = on_cpu ? TUTTI_DEVICE_CPU : device;
        if (task.starts_with("lend") || task.ends_with("symmetric")) config.algorithm = "direct";
        if (task.ends_with("symmetric")) config.channels = 2;  // so that messages are longer than slots
        if (task == "contained" || (task == "one contained" && number == 1)) gpus.opens = false;
        if (task == "order") config.timeoutMs = 5000;
        if (task.starts_with("copies")) config.ctaPolicy = TUTTI_CTA_POLICY_ZERO;
        if (task == "explain") config.timeoutMs = 300, config.initTimeoutMs = 10'000;
        if (task.ends_with("contained") && !through_shm()) return;
        harness::must_succeed(tuttiCommInitEnv(&comm, &config), "init");
        tuttiCommUserRank(comm, &rank);
        tuttiCommCount(comm, &ranks);
    }
    void await_allocations(std::size_t wanted, int otherwise) const {
        const Deadline until = Clock::now() + std::chrono::seconds(30);
        while (gpus.allocations() != wanted) {
            if (Clock::now() > until) _exit(otherwise);
            std::this_thread::yield();
        }
    }
    bool through_shm() const { return std::getenv("TUTTI_TRANSPORT") != nullptr; }
    ~Self() {
        if (comm != nullptr) tuttiCommDestroy(comm);
        if (!on_cpu) gpus.destroy_stream(stream);
        gpu::use_gpus(nullptr);
    }
    Self(const Self&) = delete;
};

}  // namespace tutti
