// tutti-topo: the shape of a machine, as text or SVG.
#include <cstdio>

#include "base/result.hpp"
#include "topo/options.hpp"
#include "topology/topology.hpp"

int main(int argc, char** argv) {
    try {
        const topo::Options options = topo::understood(argc, argv);
        const tutti::Part machine = tutti::discover(options.source);
        std::fputs((options.svg ? tutti::svg_of(machine) : tutti::text_of(machine)).c_str(), stdout);
        return command_line::written("tutti-topo", 0);
    } catch (const topo::NotUnderstood& because) {
        return because.say();
    } catch (const tutti::Error& error) {
        std::fprintf(stderr, "tutti-topo: %s\n", error.what());
    }
    return 2;
}
