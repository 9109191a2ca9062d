// Ranks on GPUs in processes of their own: memory by handles, messages through slots and lines. The test program starts
// itself again with the name of the hidden test below; where the ranks meet comes by the launchers' variables.
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "base/result.hpp"
#include "gpu/gpus.hpp"
#include "harness/catch.hpp"
#include "harness/collective.hpp"
#include "harness/emulated_gpus.hpp"

using namespace tutti;
using harness::Case;

namespace {

constexpr const char* hidden_name = "a GPU rank in a process of its own";

class Processes {
  public:
    /// task: what the hidden test does.
    Processes(int ranks, const std::string& task) {
        const std::string port = text("%d", 20000 + getpid() % 20000);
        for (int rank = 0; rank < ranks; ++rank) {
            std::vector<std::string> variables{text("RANK=%d", rank),
                                               text("WORLD_SIZE=%d", ranks),
                                               text("LOCAL_RANK=%d", rank),
                                               text("LOCAL_WORLD_SIZE=%d", ranks),
                                               "MASTER_ADDR=127.0.0.1",
                                               "MASTER_PORT=" + port,
                                               "TASK=" + task};
            std::vector<char*> environment;
            for (std::string& v : variables) environment.push_back(v.data());
            for (char** v = environ; *v != nullptr; ++v) environment.push_back(*v);
            environment.push_back(nullptr);
            std::string self = "/proc/self/exe", name = hidden_name;
            char* arguments[] = {self.data(), name.data(), nullptr};
            pid_t pid = 0;
            if (posix_spawn(&pid, self.c_str(), nullptr, nullptr, arguments, environment.data()) != 0)
                throw std::runtime_error("posix_spawn");
            pids_.push_back(pid);
        }
    }
    int wait(std::size_t rank) {
        int status = -1;
        waitpid(pids_[rank], &status, 0);
        return status;
    }

  private:
    std::vector<pid_t> pids_;
};

tuttiComm_t join(int& rank, int& ranks) {
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.device = 0;
    tuttiComm_t comm;
    harness::require_success(tuttiCommInitEnv(&comm, &config), "init");
    tuttiCommUserRank(comm, &rank);
    tuttiCommCount(comm, &ranks);
    return comm;
}

void run_collectives(harness::EmulatedGpus& gpus, void* stream) {
    int rank = 0, ranks = 0;
    tuttiComm_t comm = join(rank, ranks);
    for (Case::What what : {Case::What::all_reduce, Case::What::reduce_scatter, Case::What::all_gather,
                            Case::What::broadcast, Case::What::reduce})
        for (std::size_t count : {1, 1001, 70'003}) {
            Case c{what, count, tuttiFloat32, tuttiSum, 1};
            c.gpus = &gpus;
            harness::run_case(c, comm, rank, ranks, stream);
        }
    tuttiCommDestroy(comm);
}

/// All-reduces for ever, until the library says that rank 1 has died, which it does after a while.
void outlive_rank_1(harness::EmulatedGpus& gpus, void* stream) {
    int rank = 0, ranks = 0;
    tuttiComm_t comm = join(rank, ranks);
    std::byte* const data = gpus.allocate(0, 4096);
    for (int calls = 0;; ++calls) {
        if (rank == 1 && calls == 20) raise(SIGKILL);
        tuttiResult_t result = tuttiAllReduce(data, data, 1024, tuttiFloat32, tuttiMax, comm, stream);
        gpus.synchronize_stream(stream);
        if (result == tuttiSuccess) tuttiCommGetAsyncError(comm, &result);
        if (result == tuttiSuccess) continue;
        const std::string said = tuttiGetLastError(comm);
        _exit(result == tuttiRemoteError && said.find("rank 1 (pid ") != std::string::npos &&
                      said.find("died") != std::string::npos
                  ? 42
                  : 43);
    }
}

}  // namespace

TEST_CASE(hidden_name, "[.]") {
    harness::EmulatedGpus gpus(1, 8, 2);
    gpu::use_gpus(&gpus);
    void* const stream = gpus.make_stream(0);
    const std::string task = std::getenv("TASK");
    if (task == "collectives") run_collectives(gpus, stream);
    if (task == "outlive") outlive_rank_1(gpus, stream);
    gpus.destroy_stream(stream);
    gpu::use_gpus(nullptr);
}

TEST_CASE("GPUs: collectives between processes") {
    Processes ranks(3, "collectives");
    for (std::size_t r = 0; r < 3; ++r) CHECK(ranks.wait(r) == 0);
}

TEST_CASE("GPUs: survivors of a killed rank name it") {
    Processes ranks(3, "outlive");
    CHECK(WTERMSIG(ranks.wait(1)) == SIGKILL);
    int named = 0;
    for (std::size_t r : {0u, 2u}) {
        const int status = ranks.wait(r);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 42) ++named;
    }
    CHECK(named == 2);
}
