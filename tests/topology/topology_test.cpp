#include "topology/topology.hpp"

#include "base/result.hpp"
#include "harness/catch.hpp"

using namespace tutti;

TEST_CASE("a described machine is read and shown") {
    const Part machine = discover("package:2 numa:1 l3:1(size=33554432) core:4 pu:2");
    const std::string shown = text_of(machine);
    INFO(shown);
    CHECK(shown.find("Package 1") != std::string::npos);
    CHECK(shown.find("L3 32 MiB") != std::string::npos);
    CHECK(shown.find("4 x Core") != std::string::npos);
    const std::string picture = svg_of(machine);
    CHECK(picture.find("<svg") == 0);
    CHECK(picture.find("NUMANode 1") != std::string::npos);
}

TEST_CASE("this machine has cores") {
    const Part machine = discover();
    CHECK(machine.kind == Part::Kind::machine);
    CHECK(text_of(machine).find("PU") != std::string::npos);
}

TEST_CASE("what is no machine is refused") {
    CHECK_THROWS_AS(discover("package:two"), Error);
    CHECK_THROWS_AS(discover("/no/such/file.xml"), Error);
}

TEST_CASE("cores of one package are nearer than those of two") {
    const Part machine = discover("package:2 core:2 pu:2");  // PUs 0 to 7
    CHECK(distance(machine, 0, 0) == 0);
    CHECK(distance(machine, 0, 1) < distance(machine, 0, 2));
    CHECK(distance(machine, 0, 2) < distance(machine, 0, 4));
    CHECK(distance(machine, 0, 99) == -1);
}
