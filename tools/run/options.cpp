#include "run/options.hpp"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>

namespace run {

namespace {

constexpr int max_ranks = 65536;
constexpr double most_seconds = 1e9;

std::pair<std::string, std::string> parse_variable(const std::string& text) {
    const auto equals = text.find('=');
    if (equals == 0 || equals == std::string::npos)
        throw CLI::ValidationError("--env", "expected NAME=VALUE, got '" + text + "'");
    return {text.substr(0, equals), text.substr(equals + 1)};
}

constexpr const char* usage = R"(Usage: tutti-run -n N [options] CMD [ARGS...]

Starts N ranks of CMD on this host and waits for them. Each finds RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE,
MASTER_ADDR, MASTER_PORT and TUTTI_SECRET in its environment.

  -n, --ranks N        number of ranks
  --prefix             put [rank] in front of each line of output
  --bind core|none     core: rank r runs on core r modulo the number of cores; none (default). Also --bind-to
  --timeout SECONDS    stop the ranks after this time
  --env NAME=VALUE     set a variable for all ranks; may be repeated
  --keep-going         the others go on without a rank that fails; 0 if any ends with 0
  -q, --quiet          say nothing, not even which rank failed
  -h, --help           print this text

The exit code is that of the first rank that fails (128 + signal if it was killed). The others then get two seconds to
end by themselves, SIGTERM, two more seconds, SIGKILL. 124: --timeout. 127: there is no such CMD; 126: it can't be run.
2: wrong usage. Only rank 0 reads the standard input.
)";

}  // namespace

Options understood(int argc, char** argv) {
    Options options;
    std::string bind = "none";
    std::vector<std::string> variables;
    CLI::App app;
    app.prefix_command();  // what follows CMD is CMD's
    app.add_option("-n,--ranks", options.ranks)->required()->check(CLI::Range(1, max_ranks));
    app.add_flag("--prefix", options.prefix);
    app.add_option("--bind,--bind-to", bind)->check(CLI::IsMember({"core", "none"}));
    app.add_option("--timeout", options.timeout);
    app.add_option("--env", variables)->allow_extra_args(false);
    app.add_flag("--keep-going", options.keep_going);
    app.add_flag("-q,--quiet", options.quiet);
    try {
        app.parse(argc, argv);
        if (app.count("--timeout") > 0 && !(options.timeout > 0 && options.timeout <= most_seconds))  // nor is it nan
            throw CLI::ValidationError("--timeout", "seconds above 0, and 1e9 at most, were expected");
        for (const auto& text : variables) options.variables.push_back(parse_variable(text));
        options.command = app.remaining();
        if (options.command.empty()) throw CLI::RequiredError("CMD");
        if (options.command.front().starts_with('-')) throw CLI::ExtrasError({options.command.front()});
    } catch (const CLI::CallForHelp&) {
        throw NotUnderstood{0, usage};
    } catch (const CLI::Error& error) {
        throw NotUnderstood{exit_usage, std::string("tutti-run: ") + error.what() + "\n" + usage};
    }
    options.bind = bind == "core";
    return options;
}

Options parse(int argc, char** argv) try { return understood(argc, argv); } catch (const NotUnderstood& because) {
    std::fputs(because.text.c_str(), because.code == 0 ? stdout : stderr);
    std::exit(because.code);
}

}  // namespace run
