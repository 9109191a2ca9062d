#include "topo/options.hpp"

#include <CLI/CLI.hpp>

namespace topo {

Options understood(int argc, char** argv) {
    Options options;
    CLI::App app(
        "The shape of this machine, or of one that is described: packages, memory, caches, cores, GPUs, "
        "network adapters.",
        "tutti-topo");
    app.add_option("SOURCE", options.source,
                   "a file of hwloc's XML, or a description such as \"package:2 numa:1 core:8 pu:2\" (this machine)");
    app.add_flag("--svg", options.svg, "as a picture, on the standard output");
    try {
        app.parse(argc, argv);
    } catch (const CLI::CallForHelp&) {
        throw NotUnderstood{0, app.help()};
    } catch (const CLI::Error& error) {
        throw NotUnderstood{2, std::string("tutti-topo: ") + error.what() + "\n" + app.help()};
    }
    return options;
}

}  // namespace topo
