// Two ranks that share a GPU and are processes of their own, by CUDA's interface and tutti.h alone. The program starts
// itself again with the name of a hidden test, which is a rank.
#pragma once

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "harness/harness.hpp"
#include "world.hpp"

namespace tutti::on_gpu {

class Processes {
  public:
    /// task: what the hidden test does. settings: more variables.
    Processes(const std::string& hidden_test, const std::string& task, const std::vector<std::string>& settings = {}) {
        const std::string port = std::to_string(20'000 + getpid() % 12'000);  // the kernel deals out others
        for (std::size_t rank = 0; rank < ranks; ++rank) {
            const std::string number = std::to_string(rank), all = std::to_string(ranks);
            std::vector<std::string> variables{"RANK=" + number,          "WORLD_SIZE=" + all, "LOCAL_RANK=" + number,
                                               "LOCAL_WORLD_SIZE=" + all, "TASK=" + task,      "MASTER_ADDR=127.0.0.1",
                                               "MASTER_PORT=" + port};
            variables.insert(variables.end(), settings.begin(), settings.end());
            std::vector<char*> environment;
            for (std::string& v : variables) environment.push_back(v.data());
            for (char** v = environ; *v != nullptr; ++v) environment.push_back(*v);
            environment.push_back(nullptr);
            std::string self = harness::this_program(), name = hidden_test;
            char* arguments[] = {self.data(), name.data(), nullptr};
            REQUIRE(posix_spawn(&pids_[rank], self.c_str(), nullptr, nullptr, arguments, environment.data()) == 0);
        }
    }
    ~Processes() {
        for (std::size_t rank = 0; rank < ranks; ++rank)
            if (pids_[rank] > 0) kill(pids_[rank], SIGKILL), wait(rank);
    }
    Processes(const Processes&) = delete;
    /// The status of a process, once it has ended.
    int wait(std::size_t rank) {
        int status = -1;
        waitpid(std::exchange(pids_[rank], -1), &status, 0);
        return status;
    }

  private:
    std::array<pid_t, ranks> pids_{};
};

/// What the hidden test has: a rank on a GPU.
class Rank {
  public:
    /// channels: few make messages longer than slots are.
    explicit Rank(int channels = TUTTI_UNDEF_INT, int device = 0, int policy = TUTTI_CTA_POLICY_DEFAULT) {
        require(cudaSetDevice(device));
        tuttiConfig_t config = with_timeout(20'000);
        config.device = device;
        config.channels = channels;
        config.ctaPolicy = policy;
        config.initTimeoutMs = 30'000;
        config.algorithm = "direct";  // which refers to memory that is lent
        require(tuttiCommInitEnv(&comm, &config));
        require(tuttiCommUserRank(comm, &rank));
        config.device = TUTTI_DEVICE_CPU;
        config.channels = TUTTI_UNDEF_INT;
        require(tuttiCommSplit(comm, 0, rank, &hosts_, &config));
        require(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    }
    ~Rank() {
        if (comm != nullptr) tuttiCommDestroy(comm);
        tuttiCommDestroy(hosts_);
        cudaStreamDestroy(stream);
    }
    Rank(const Rank&) = delete;

    /// Returns when both processes have called it. Call it behind tuttiCommDeregister: until the other rank has
    /// deregistered, too, no kernel of this one may wait for what it calls next.
    void meet() const { require(tuttiBarrier(hosts_, nullptr)); }
    void synchronize() const { require(cudaStreamSynchronize(stream)); }
    void upload(void* to, const std::vector<int>& from) const {
        require(cudaMemcpyAsync(to, from.data(), from.size() * sizeof(int), cudaMemcpyHostToDevice, stream));
        synchronize();
    }
    std::vector<int> downloaded(const void* from, std::size_t count) const {
        std::vector<int> out(count);
        require(cudaMemcpyAsync(out.data(), from, count * sizeof(int), cudaMemcpyDeviceToHost, stream));
        synchronize();
        return out;
    }
    /// An all-reduce of numbers that differ from round to round, by a call or by a graph of one; whether it is right.
    bool adds_up(int* in, int* out, std::size_t count, int round, cudaGraphExec_t graph = nullptr) const {
        const auto value = [&](int of, std::size_t i) { return static_cast<int>(i % 1009) * (of + 1) + round; };
        std::vector<int> values(count);
        for (std::size_t i = 0; i < count; ++i) values[i] = value(rank, i);
        upload(in, values);
        if (graph != nullptr)
            require(cudaGraphLaunch(graph, stream));
        else
            require(tuttiAllReduce(in, out, count, tuttiInt32, tuttiSum, comm, stream));
        for (std::size_t i = 0; i < count; ++i) values[i] = value(0, i) + value(1, i);
        const bool right = downloaded(out, count) == values;
        tuttiResult_t error = tuttiSuccess;
        require(tuttiCommGetAsyncError(comm, &error));
        INFO("round " << round << ": " << tuttiGetLastError(comm));
        CHECK(error == tuttiSuccess);
        return right;
    }
    cudaGraphExec_t captured(int* in, int* out, std::size_t count) const {
        cudaGraph_t graph = nullptr;
        cudaGraphExec_t made = nullptr;
        require(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        require(tuttiAllReduce(in, out, count, tuttiInt32, tuttiSum, comm, stream));
        require(cudaStreamEndCapture(stream, &graph));
        require(cudaGraphInstantiate(&made, graph, 0));
        require(cudaGraphDestroy(graph));
        return made;
    }

    tuttiComm_t comm = nullptr;
    cudaStream_t stream = nullptr;
    int rank = -1;

  private:
    tuttiComm_t hosts_ = nullptr;  // of the same ranks, without GPUs
};

inline void end_well(Processes&& processes) {
    for (std::size_t rank = 0; rank < ranks; ++rank) CHECK(processes.wait(rank) == 0);
}

}  // namespace tutti::on_gpu
