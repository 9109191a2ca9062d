// tuttiDpJoin: a rank that has no batches left repeats the calls of a rank that has some.
#include "dp/engine.hpp"

namespace tutti::dp {

using Call = Announcement::Call;

/// Tells this rank's followers, if it leads, which call it makes.
void Engine::announce(Announcement what, const std::string& text) {
    if (!attendance_.leads()) return;
    what.learning_rate = options().optimizer.learningRate;
    worker_->or_fail([&] { attendance_.announce(what, text); });
}

/// Exchanges which ranks have a batch. Collective.
void Engine::call_roll(bool has_batch) {
    units_.refuse_gathered(has_batch ? "tuttiDpBegin" : "tuttiDpJoin");
    announce({Call::begin});
    worker_->or_fail([&] { attendance_.meet(has_batch); });
    if (options().join == TUTTI_DP_JOIN_ACTIVE && !attendance_.is_over()) reducer_.divide_over(attendance_.active());
}

void Engine::follow_the_others() {
    worker_->check();
    if (options().join == 0) fail(tuttiInvalidUsage, "tuttiDpJoin: config.join is 0");
    if (iteration_.phase == Phase::collecting)
        fail(tuttiInvalidUsage, "tuttiDpJoin: the iteration before has not been synchronized");
    for (call_roll(false); !attendance_.is_over(); call_roll(false)) {
        begin_iteration();
        while (follow()) {
        }
    }
    const bool behind = attendance_.seen_followers() && options().optimizer.kind == tuttiDpNoOptimizer;
    attendance_.close();
    if (behind) broadcast(attendance_.last_leader());
}

/// Receives the leader's next call and makes it. Returns false if it is Begin or Join.
bool Engine::follow() {
    std::string words;
    Announcement what{};
    worker_->or_fail([&] { what = attendance_.hear(words); });
    set_learning_rate(what.learning_rate);
    if (what.call == Call::begin) return false;
    const auto place = static_cast<std::size_t>(what.number);
    const int number = static_cast<int>(what.number);
    int rank = 0;
    std::size_t parameter = 0;
    const tuttiResult_t result = guarded([&] {
        switch (what.call) {
            case Call::begin:
                break;
            case Call::launch:
                return iteration_.launch_up_to(place, [&](std::size_t bucket) { launch(bucket); });
            case Call::synchronize:
                return synchronize();
            case Call::clip:
                return void(clip(what.real, what.flag == 1));
            case Call::unscale:
                return void(unscale());
            case Call::step:
                return step();
            case Call::set_group:
                return set_group(place, {what.real, what.second, what.flag, 0});
            case Call::gather:
                return gather(number);
            case Call::release:
                return release(number);
            case Call::find_nan:
                return find_bad(&rank, &parameter);
            case Call::check_equal:
                return check_equal();
            case Call::broadcast:
                return broadcast(number);
            case Call::reset_error_feedback:
                return reset_error_feedback();
            case Call::save:
                return save(words.c_str(), false);
            case Call::save_beside:
                return save(words.c_str(), true);
            case Call::save_wait:
                return save_wait();
            case Call::load:
                return load(words.c_str());
            case Call::set_note:
                return set_note(words.c_str(), what.flag ? words.c_str() + place : nullptr);
        }
    });
    // A call that is refused here is also refused on the leader. Any other error is this rank's alone, and ends the
    // layer.
    const bool refused = result == tuttiInvalidUsage || result == tuttiInvalidArgument;
    if (result != tuttiSuccess && !refused) worker_->fail(Error(result, tuttiGetLastError(nullptr)));
    worker_->check();
    return true;
}

/// The announcement's text is the key, a 0, and the note.
void Engine::set_note(const char* key, const char* text) {
    const std::string name = key;
    announce({.call = Call::set_note, .flag = text != nullptr, .number = static_cast<std::int64_t>(name.size() + 1)},
             name + '\0' + (text != nullptr ? text : ""));
    text != nullptr ? void(notes_[name] = text) : void(notes_.erase(name));
}

}  // namespace tutti::dp
