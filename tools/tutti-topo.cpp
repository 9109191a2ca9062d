// tutti-topo: the shape of a machine, as text or SVG.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "base/result.hpp"
#include "topology/topology.hpp"

int main(int argc, char** argv) {
    CLI::App app(
        "The shape of this machine, or of one that is described: packages, memory, caches, cores, GPUs, "
        "network adapters.",
        "tutti-topo");
    std::string source;
    bool svg = false;
    app.add_option("SOURCE", source,
                   "a file of hwloc's XML, or a description such as \"package:2 numa:1 core:8 pu:2\" (this machine)");
    app.add_flag("--svg", svg, "as a picture, on the standard output");
    try {
        app.parse(argc, argv);
        const tutti::Part machine = tutti::discover(source);
        std::fputs((svg ? tutti::svg_of(machine) : tutti::text_of(machine)).c_str(), stdout);
        return 0;
    } catch (const CLI::CallForHelp&) {
        std::fputs(app.help().c_str(), stdout);
        return 0;
    } catch (const CLI::Error& error) {
        std::fprintf(stderr, "tutti-topo: %s\n%s", error.what(), app.help().c_str());
    } catch (const tutti::Error& error) {
        std::fprintf(stderr, "tutti-topo: %s\n", error.what());
    }
    return 2;
}
