// What an engine does in the background while its rank does nothing: all that is due, and in time. The limit of silence
// is 30 s here, so a look at silent hosts, which would find what else was forgotten, comes after 3.75 s.
#include <chrono>
#include <thread>

#include "harness/catch.hpp"
#include "links.hpp"

using namespace tutti;
using namespace tutti::harness;
using std::chrono::milliseconds;

namespace {

constexpr milliseconds timeout{60'000}, soon{1500};

/// Whether something() holds soon.
template <class Something>
bool comes_soon(Something&& something) {
    for (const Deadline limit = Clock::now() + soon; !something(); std::this_thread::sleep_for(milliseconds(1)))
        if (Clock::now() > limit) return false;
    return true;
}

}  // namespace

TEST_CASE("while kernels run the engine looks for them again after its rank has polled for something else") {
    LinkedPair pair = join(*find_transport("tcp"), {}, false, true, timeout);
    Engine& engine = *pair.at[0].engine;
    engine.ask([] { return true; });
    const bool by_stream = GENERATE(false, true);
    by_stream ? engine.serve(true) : engine.launched();
    Sender sender(pair.link[0]->outlet(0));
    Receiver receiver(pair.link[1]->inlet(0));
    for (std::uint32_t m = 1; m < 3; ++m) {
        for (const Deadline limit = Clock::now() + milliseconds(50); Clock::now() < limit;) engine.poll();
        engine.rest(false);
        std::this_thread::sleep_for(milliseconds(20));
        sender.commit(Kind::inlined, 0, m);  // as a kernel does: it does not ring
        CHECK(comes_soon([&] { return pair.at[1].engine->poll(), receiver.ready(); }));
        if (receiver.ready()) receiver.release();
    }
    if (by_stream) engine.serve(false);
    engine.ask(nullptr);
}
