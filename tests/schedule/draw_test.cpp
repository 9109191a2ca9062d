#include "schedule/draw.hpp"

#include "algorithms/prove.hpp"
#include "base/result.hpp"
#include "harness/catch.hpp"

using namespace tutti;

namespace {

std::size_t count_of(const std::string& text, const std::string& what) {
    std::size_t found = 0;
    for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++found;
    return found;
}

}  // namespace

TEST_CASE("a picture has a box for each step and an arrow for each message") {
    const std::vector<Program> programs = all_programs(*find_algorithm("ring"), Collective::all_reduce, 4);
    std::size_t steps = 0, messages = 0;
    for (const Program& p : programs) {
        steps += p.steps.size();
        for (const Step& s : p.steps)
            for (const Operand& o : p.sinks(s)) messages += o.place == Place::peer ? 1 : 0;
    }
    const std::string picture = svg_of(programs, "ring");
    CHECK(picture.find("<svg ") == 0);
    CHECK(count_of(picture, "rx=\"4\"") == steps);
    CHECK(count_of(picture, "marker-end") == messages);
    CHECK(picture.ends_with("</svg>\n"));
}

TEST_CASE("programs that do not finish are not drawn") {
    std::vector<Program> programs = all_programs(*find_algorithm("ring"), Collective::all_reduce, 3);
    programs.pop_back();
    CHECK_THROWS_AS(svg_of(programs, "broken"), Error);
}
