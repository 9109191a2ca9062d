// The log and the library's threads: neither ends a program, whatever the environment says and whatever is thrown.
#include <cstdio>
#include <new>
#include <string>
#include <system_error>
#include <utility>

#include "base/caught.hpp"
#include "base/log.hpp"
#include "base/thread.hpp"
#include "harness/catch.hpp"
#include "harness/harness.hpp"

using namespace tutti;

namespace {

/// What the hidden test below prints when this program runs it anew with these variables, and how it ends.
std::pair<std::string, int> logged_with(const std::string& variables) {
    const std::string self = harness::this_program();
    FILE* const said = popen(
        ("env -u TUTTI_DEBUG -u NCCL_DEBUG " + variables + " " + self + " 'lines of a thread' 2>&1").c_str(), "r");
    REQUIRE(said != nullptr);
    std::string text;
    for (char part[256]; std::fgets(part, sizeof part, said) != nullptr;) text += part;
    return {text, pclose(said)};
}

}  // namespace

TEST_CASE("lines of a thread", "[.]") {
    Thread thread = start_thread("tutti-test", [] { log(Level::info, "a line of level %s", "info"); });
    thread.join();
    log(Level::warn, "a line of level %s", "warn");
}

TEST_CASE("levels of the log are understood in any case, and what is not understood is told, not thrown") {
    struct Setting {
        const char* variables;
        bool info, warn, told;  // told: that the level is none
    };
    const Setting settings[] = {
        {"TUTTI_DEBUG=INFO", true, true, false},    {"TUTTI_DEBUG=info", true, true, false},
        {"TUTTI_DEBUG=Trace", true, true, false},   {"TUTTI_DEBUG=none", false, false, false},
        {"TUTTI_DEBUG=warn", false, true, false},   {"NCCL_DEBUG=info", true, true, false},
        {"NCCL_DEBUG=version", false, true, false}, {"TUTTI_DEBUG=loud", false, true, true},
        {"TUTTI_DEBUG=version", false, true, true}, {"TUTTI_TIMEOUT_MS=soon", false, true, false}};
    for (const Setting& s : settings) {
        CAPTURE(s.variables);
        const auto [text, status] = logged_with(s.variables);
        CAPTURE(text);
        CHECK(status == 0);
        CHECK((text.find("level info") != std::string::npos) == s.info);
        CHECK((text.find("level warn") != std::string::npos) == s.warn);
        CHECK((text.find("TUTTI_DEBUG is '") != std::string::npos) == s.told);
    }
}

TEST_CASE("what a thread of the library throws ends the thread alone") {
    for (int what = 0; what < 3; ++what)
        start_thread("tutti-test", [what] {
            if (what == 0) throw std::bad_alloc();
            if (what == 1) throw 1;
            fail(tuttiInternalError, "thrown by a test");
        }).join();
    SUCCEED();
}

TEST_CASE("whatever is caught is an error with a code") {
    const auto caught_of = [](auto&& exception) {
        try {
            throw exception;
        } catch (...) {
            return caught();
        }
    };
    CHECK(caught_of(Error(tuttiTimeout, "late")).code() == tuttiTimeout);
    CHECK(caught_of(std::bad_alloc()).code() == tuttiSystemError);
    CHECK(caught_of(std::system_error(EAGAIN, std::generic_category())).code() == tuttiSystemError);
    CHECK(caught_of(std::logic_error("odd")).code() == tuttiInternalError);
    CHECK(caught_of(1).code() == tuttiInternalError);
}
