// The data-parallel layer, and files: checkpoints, what tutti-tune writes.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "base/result.hpp"
#include "plan/tuning.hpp"
#include "tutti/ps.h"
#include "walk.hpp"

namespace tutti::failing {
namespace {

constexpr std::size_t counts[] = {300, 500};
constexpr std::size_t parameters = std::size(counts);

/// A model whose weights are 8 at first. Each step takes the mean of the gradients from them, which are twice the rank
/// plus 1: as many as there are ranks.
class Training {
  public:
    Training(Party& party, tuttiDpMode_t mode, int staleness) : party_(party), call_(party) {
        tuttiDpParameter_t parameter[parameters] = {};
        constexpr const char* names[] = {"weights", "biases"};
        for (std::size_t k = 0; k < parameters; ++k) {
            parameter[k].name = names[k];
            parameter[k].count = counts[k];
            parameter[k].type = tuttiFloat32;
            parameter[k].gradType = tuttiDpSameType;
            std::fill_n(values_[k], counts[k], 8.0f);
            parameter[k].data = values_[k];
        }
        tuttiDpConfig_t config = TUTTI_DP_CONFIG_INITIALIZER;
        config.mode = mode;
        config.optimizer.kind = tuttiDpSgd;
        config.optimizer.learningRate = 1;
        if (staleness >= 0) config.staleness = staleness;
        sharded_ = mode == tuttiDpZero3;
        call_(tuttiDpCreate(&layer_, parameter, parameters, &config, party.comm));
    }
    ~Training() {
        if (layer_ != nullptr) tuttiDpDestroy(layer_);
    }
    Training(const Training&) = delete;

    void step() {
        if (!call_.good() || !call_(tuttiDpBegin(layer_))) return;
        if (sharded_ && !call_(tuttiDpGather(layer_, 0))) return;
        for (std::size_t k = parameters; k-- > 0;) {
            void* gradient = nullptr;
            if (!call_(tuttiDpGradient(layer_, k, &gradient))) return;
            for (std::size_t i = 0; i < counts[k]; ++i)
                static_cast<float*>(gradient)[i] = static_cast<float>(2 * party_.rank + 1);
            if (!call_(tuttiDpGradReady(layer_, k))) return;
        }
        if (sharded_ && !call_(tuttiDpRelease(layer_, 0))) return;
        call_(tuttiDpSynchronize(layer_)) && call_(tuttiDpStep(layer_));
    }

    void wait() { call_.good() && call_(tuttiDpWait(layer_)); }
    /// To new communicators of the same ranks: all parts are handed over.
    void move() { call_.good() && call_(tuttiDpMove(layer_, party_.comm)); }
    void save(const std::string& path) { call_.good() && call_(tuttiDpSave(layer_, path.c_str())); }
    void load(const std::string& path) { call_.good() && call_(tuttiDpLoad(layer_, path.c_str())); }

    /// Whether all have come as far as one of these numbers of steps.
    bool is_at(std::initializer_list<int> steps) {
        if (!call_.good()) return false;
        if (sharded_ && !call_(tuttiDpGather(layer_, 0))) return false;
        bool so = true;
        for (std::size_t k = 0; k < parameters; ++k) {
            void* data = nullptr;
            if (!call_(tuttiDpData(layer_, k, &data))) return false;
            const auto* const w = static_cast<const float*>(data);
            so = so && std::ranges::any_of(steps, [&](int n) {
                     return std::all_of(w, w + counts[k], [&](float x) { return x == 8 - float(n * party_.ranks); });
                 });
        }
        if (sharded_) call_(tuttiDpRelease(layer_, 0));
        return so;
    }

    bool good() const { return call_.good(); }
    tuttiResult_t end() { return call_.first(); }

  private:
    Party& party_;
    Calls call_;
    tuttiDp_t layer_ = nullptr;
    bool sharded_ = false;
    float values_[parameters][500];
};

Operation steps(const char* name, tuttiDpMode_t mode, int staleness = -1) {
    return {name,
            [=](Party& p) {
                Training training(p, mode, staleness);
                for (int i = 0; i < 2; ++i) training.step();
                training.wait();
                p.right = training.is_at({2});
                return training.end();
            },
            false, true};
}

tuttiResult_t moves(Party& p) {
    Training training(p, tuttiDpZero3, -1);
    training.step();
    training.move();
    training.step();
    p.right = training.is_at({2});
    return training.end();
}

/// A key of several parts, which both ranks serve: made and taken down.
tuttiResult_t servers(Party& p) {
    Calls call(p);
    const tuttiPsKey_t key = {"key", 3000, tuttiFloat32, nullptr};
    tuttiPsConfig_t config = TUTTI_PS_CONFIG_INITIALIZER;
    config.partBytes = 4096;
    config.threads = 1;
    config.timeoutMs = 8000;
    config.optimizer.kind = tuttiDpSgd;
    tuttiPs_t ps = nullptr;
    if (call(tuttiPsCreate(&ps, &key, 1, &config, p.comm))) tuttiPsDestroy(ps);  // may fail, without the reason
    p.right = true;
    return call.first();
}

/// Where this program's files are: in memory, as every place that fails is a sync, which a busy disk makes wait.
class Folder {
  public:
    Folder() : name_("/dev/shm/tutti-failures-" + std::to_string(getpid())) {
        const OfTheTest mine;
        std::filesystem::create_directories(name_);
    }
    ~Folder() { std::filesystem::remove_all(name_); }
    std::string file(const char* name) const {
        const OfTheTest mine;
        return name_ + "/" + name;
    }
    bool has(const char* name) const {
        const OfTheTest mine;
        return std::filesystem::exists(file(name));
    }
    /// No drafts are left.
    bool is_tidy() const {
        const OfTheTest mine;
        return std::ranges::none_of(std::filesystem::directory_iterator(name_), [](const auto& entry) {
            return entry.path().string().find(".new") != std::string::npos;
        });
    }

  private:
    std::string name_;
};
const Folder& folder() {
    const OfTheTest mine;
    static const Folder one;
    return one;
}

/// What the run before has saved must be whole, although its calls may have failed: the old checkpoint, or the new one.
tuttiResult_t checkpoint(Party& p) {
    const std::string path = folder().file("checkpoint");
    const bool there = folder().has("checkpoint/model.safetensors.index.json");
    Training training(p, tuttiDpBucketed, -1);
    if (there) training.load(path);
    const bool whole = !there || !training.good() || training.is_at({0, 1});
    if (training.is_at({0})) training.step();
    training.save(path);
    if (!training.good()) return training.end();
    Training again(p, tuttiDpZero3, -1);
    again.load(path);
    p.right = whole && again.is_at({1});
    return again.end();
}

/// By each rank for itself: nobody else takes part.
tuttiResult_t tuning_file(Party& p) {
    if (p.rank != 0) return p.right = true, tuttiSuccess;
    const std::string path = folder().file("tuning.json");
    const auto some = [](double time) {
        Tuning made;
        for (const std::size_t bytes : {8, 4096}) made.add(Collective::all_reduce, "ring", "shm", 2, {bytes, time});
        made.add_path("tcp", {time, time});
        return made;
    };
    const auto time_of = [](const Tuning& tuning) {
        const Tuning::Curve* const curve = tuning.find(Collective::all_reduce, "ring", "shm", 2);
        return curve != nullptr && curve->size() == 2 ? curve->front().time : 0.0;
    };
    const tuttiResult_t result = guarded([&] {
        some(2).write(path);
        p.right = time_of(Tuning::read(path)) == 2;
    });
    const OfTheTest mine;
    if (result != tuttiSuccess) p.text = last_error();
    if (!folder().is_tidy()) p.text = "a draft has been left behind", p.right = false;
    return p.text.empty() || p.right || result != tuttiSuccess ? result : tuttiInternalError;
}

}  // namespace

std::vector<Operation> training() {
    return {
        steps("steps of a layer", tuttiDpBucketed),       steps("steps of a layer that shards", tuttiDpZero3),
        steps("steps behind a server", tuttiDpServer, 1), {"a move of a layer that shards", moves, false, true},
        {"a checkpoint", checkpoint, false, true},        {"a tuning file", tuning_file},
        {"parameter servers", servers, false, true},
    };
}

}  // namespace tutti::failing
