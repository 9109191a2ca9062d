// The Engine's checkpoints: the files of checkpoint.hpp, and the other settings on which a step depends.
#include "dp/engine.hpp"

namespace tutti::dp {
namespace {

/// Throws if there is no path, or an iteration is under way.
void check_file(const Iteration& iteration, const char* function, const char* path) {
    if (path == nullptr || *path == '\0') fail(tuttiInvalidArgument, "%s: path is empty", function);
    if (iteration.phase == Iteration::Phase::collecting)
        fail(tuttiInvalidUsage, "%s: in the middle of an iteration", function);
}

}  // namespace

void Engine::save(const char* given, bool beside) {
    Manifest m;
    announce({beside ? Announcement::Call::save_beside : Announcement::Call::save}, given != nullptr ? given : "");
    agree([&] {
        check_file(iteration_, beside ? "tuttiDpSaveAsync" : "tuttiDpSave", given);
        m.step = progress_.begun;
        m.learning_rate = options().optimizer.learningRate;
        m.groups = options().own_groups;
        m.scale = loss_scale_.state();
        m.notes = notes_;
        for (const Parameter& p : parameters()) m.model[p.name];
        text_of(m);  // throws if a name can't be written
    });
    const std::string path = given;
    finish_save();
    wait();
    m.step = progress_.begun;
    for (std::size_t p = 0; p < parameters().size(); ++p)
        if (parameters()[p].is_trained() && updater_.counts[p] != m.step)
            m.updates[parameters()[p].name] = updater_.counts[p];
    if (!options().asynchronous())
        for (const Bucket& b : storage_.buckets()) storage_.take_callers_values(b);
    const Kept kept{reducer_.residuals(), reducer_.factors()};
    saves_.begin(path, ranks_, storage_, kept, std::move(m), beside);
    if (!beside) finish_save();
}

void Engine::save_wait() {
    announce({Announcement::Call::save_wait});
    finish_save();
}

void Engine::finish_save() {
    worker_->check();
    saves_.finish(ranks_);
}

tuttiDpMemory_t Engine::memory() const {
    tuttiDpMemory_t all = storage_.memory();
    all.staging = saves_.staging_bytes();
    return all;
}

void Engine::load(const char* given) {
    announce({Announcement::Call::load}, given != nullptr ? given : "");
    agree([&] {
        check_file(iteration_, "tuttiDpLoad", given);
        units_.refuse_gathered("tuttiDpLoad");
    });
    const std::string path = given;
    finish_save();
    units_.forget(*worker_);
    wait();
    load_from(path);
}

void Engine::load_from(const std::string& path) {
    const Kept kept{reducer_.residuals(), reducer_.factors()};
    Loading loading(path, ranks_, storage_, kept);
    progress_.half = true;  // until set_steps()
    worker_->or_fail([&] {
        try {
            loading.finish(ranks_);
        } catch (...) {
            ranks_.leave();  // not abort(): other ranks may still be reading the error
            throw;
        }
    });
    const Manifest& m = loading.manifest();
    spread_all();
    sweep();
    for (std::size_t p = 0; p < parameters().size(); ++p) {
        const auto its = m.updates.find(parameters()[p].name);
        updater_.counts[p] = its != m.updates.end() ? its->second : m.step;
    }
    registration_.options.optimizer.learningRate = m.learning_rate;
    if (m.groups.size() == options().own_groups.size())
        for (std::size_t g = 0; g < m.groups.size(); ++g) {
            registration_.options.own_groups[g].learningRateFactor = m.groups[g].learningRateFactor;
            registration_.options.own_groups[g].weightDecay = m.groups[g].weightDecay;
        }
    notes_ = m.notes;
    if (m.scale.scale > 0 && loss_scale_.is_on()) loss_scale_.restore(m.scale);
    saves_.last = path;
    set_steps(m.step);
    iteration_.phase = Phase::idle;
}

}  // namespace tutti::dp
