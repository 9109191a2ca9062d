// The layer with config.onArrival: a worker and a server of dp/ps, with a key for each trained parameter. A function
// without a comment implements the C function of that name. On a rank that only serves most of them do nothing.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "dp/engine.hpp"
#include "dp/ps/node.hpp"

namespace tutti::dp {

/// Owned by a tuttiDp_t handle; threads as for an Engine.
class OnArrival {
  public:
    /// Collective: if one rank refuses, the constructor throws on all ranks.
    OnArrival(Engine::Request request, tuttiComm_t comm);
    ~OnArrival();  // as tuttiPsDestroy

    std::size_t checked(std::size_t parameter, const char* function) const;
    void* gradient(std::size_t parameter);
    void* data(std::size_t parameter);

    void begin();
    void no_sync(bool on);
    void grad_ready(std::size_t parameter, const void* made_at = nullptr);  // as the Engine's
    void synchronize();
    void step();
    void wait();
    void abandon();
    void set_learning_rate(double rate);
    void move(tuttiComm_t comm);  // in arrival_moving.cpp
    // In arrival_checkpoint.cpp. These concern one rank alone.
    void save(const char* path, bool beside);  // SaveAsync, too
    void save_wait();
    void load(const char* path);
    void set_note(const char* key, const char* text);
    const Notes& notes() const { return notes_; }
    /// As tuttiPsDestroy. Throws the first error.
    void leave();

    tuttiDpMemory_t memory() const;
    tuttiDpStatistics_t statistics() const;
    const LossScale& loss_scale() const { return loss_scale_; }

  private:
    using Phase = Iteration::Phase;
    const Options& options() const { return registration_.options; }
    ps::Client& client(const char* function);
    ps::Node::Request node_request(const char* function, std::optional<Error> refusal, int ranks) const;
    std::size_t bytes_of(std::size_t parameter) const;
    void check_memory(tuttiComm_t comm);
    std::byte* own(void* callers, std::size_t parameter);
    void make_gradients();
    int pull_values(const char* function);
    class Whole;
    struct Beside;
    struct Comer;
    class Move;
    void hand_over(const Move& move, const Ranks& ranks, const ps::Settings& settings, const ps::Table& table,
                   ps::Server* server) const;
    void settle(const Move& move, const Ranks& ranks);
    std::optional<Error> elsewhere(tuttiComm_t comm) const;
    std::size_t saving_bytes() const;
    void check_moment(const char* function, const char* path);
    bool needs_all() const { return options().clipNorm > 0 || loss_scale_.is_on(); }
    double squares() const;
    void clamp(std::size_t parameter) const;
    std::vector<std::byte> fetched(std::size_t parameter) const;
    std::optional<double> judge_gradients();
    void send(std::size_t parameter, double unscale);
    void wait_for_sends();

    Registration registration_;
    int device_ = TUTTI_DEVICE_CPU;
    BackendPtr here_;  // of values and gradients: a GPU's memory with config.stream, or the host's
    Iteration iteration_;
    std::vector<std::size_t> trained_;            // by key: its parameter, ascending
    std::vector<std::unique_ptr<Block>> memory_;  // values and gradients that are not in the caller's memory
    std::vector<std::byte*> values_, gradients_;  // by parameter
    std::vector<std::unique_ptr<Block>> halves_;  // by parameter: its gradient in 16 bits; nullptr if sent as it is
    std::vector<tuttiPsRequest_t> sends_;         // by parameter; 0 if none is under way
    bool sent_ = false;                           // needs_all(): this iteration's gradients have been judged and sent
    LossScale loss_scale_;                        // this rank's own
    Statistics statistics_;
    Notes notes_;
    std::shared_ptr<Beside> saving_;  // the save in progress, nullptr if there is none
    int moves_ = 0;                   // that this rank has made
    bool moving_ = false;             // a move is under way, or has failed half-way
    bool alone_ = false;              // the layer was made for one rank
    std::unique_ptr<ps::Node> node_;  // declared last, so that its threads end before the rest is destroyed
};

}  // namespace tutti::dp
