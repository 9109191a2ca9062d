// One rank of a storm (tools/storm): random operations until another rank dies, or until all are told to stop; then
// what it was told, and whether the ranks that are left can go on.
//
//     storm-rank --rank R --ranks N --seed S [--focus KIND] [--transport T] [--recover shrink|rejoin] [--left N]
//                [--again yes|no] [--init-ms MS]
//
// --transport auto: what Tutti chooses. --left: how many are to be left (all but one). --again: they then split what
// they have made, and shrink it once more.
//
// It talks with what has started it by lines. It prints "up"; "id HEX" when it was told "make"; "ready" when it has
// joined; "failed" when it waits to rejoin; and a line of JSON as its last. It is told "make", "join HEX RANK RANKS",
// and "stop". The exit code is 0 unless the line of JSON is missing.
#include <dirent.h>
#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <map>
#include <optional>
#include <sstream>

#include "steps/steps.hpp"

using namespace tutti::steps;

namespace {

constexpr std::size_t most_bytes = std::size_t{1} << 20;  // of a rank's row

struct Report {
    std::string outcome = "stopped", doing, call, text, trouble;
    int code = 0, named_there = -2;
    std::vector<int> failed, members;
    std::int64_t error_ns = 0, named_ns = 0, calls_shrink_ns = 0, shrunk_ns = 0, recovered_ns = 0;
    std::uint64_t steps = 0;
    int descriptors[2] = {};
    std::string open;  // what they are, where there are more than expected
};

std::string quoted(const std::string& s) {
    std::string out = "\"";
    for (const char c : s) {
        if (c == '"' || c == '\\') out += '\\';
        out += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
    }
    return out + "\"";
}

void say(const std::string& line) {
    std::cout << line << std::endl;
}

void say(const Report& r, int rank) {
    std::ostringstream s;
    s << "{\"rank\": " << rank << ", \"outcome\": " << quoted(r.outcome) << ", \"doing\": " << quoted(r.doing)
      << ", \"call\": " << quoted(r.call) << ", \"text\": " << quoted(r.text) << ", \"trouble\": " << quoted(r.trouble)
      << ", \"code\": " << r.code << ", \"named_there\": " << r.named_there << ", \"failed\": [";
    for (std::size_t i = 0; i < r.failed.size(); ++i) s << (i > 0 ? ", " : "") << r.failed[i];
    s << "], \"members\": [";
    for (std::size_t i = 0; i < r.members.size(); ++i) s << (i > 0 ? ", " : "") << r.members[i];
    s << "], \"error_ns\": " << r.error_ns << ", \"named_ns\": " << r.named_ns
      << ", \"calls_shrink_ns\": " << r.calls_shrink_ns << ", \"shrunk_ns\": " << r.shrunk_ns
      << ", \"recovered_ns\": " << r.recovered_ns << ", \"steps\": " << r.steps << ", \"descriptors\": ["
      << r.descriptors[0] << ", " << r.descriptors[1] << "], \"open\": \"" << r.open << "\"}";
    say(s.str());
}

int descriptors() {
    int count = 0;
    DIR* const all = opendir("/proc/self/fd");
    while (all != nullptr && readdir(all) != nullptr) ++count;
    if (all != nullptr) closedir(all);
    return count;
}

/// What each is, and for sockets the kernel's line about it.
std::string open_descriptors() {
    std::string all;
    for (int fd = 0; fd < 1024; ++fd) {
        char what[256];
        const ssize_t size = readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), what, sizeof what);
        if (size <= 0) continue;
        const std::string name(what, static_cast<std::size_t>(size));
        all += std::to_string(fd) + " " + name;
        if (name.starts_with("socket:["))
            for (const char* const table : {"unix", "tcp", "tcp6"}) {
                std::ifstream lines(std::string("/proc/self/net/") + table);
                const std::string inode = " " + name.substr(8, name.size() - 9) + " ";
                for (std::string line; std::getline(lines, line);)
                    if (line.find(inode) != std::string::npos) all += std::string(" ") + table + " " + line;
            }
        all += "; ";
    }
    return all;
}

tuttiUniqueId id_of(const std::string& hex) {
    tuttiUniqueId id{};
    for (std::size_t i = 0; i < sizeof id.internal && 2 * i + 1 < hex.size(); ++i)
        id.internal[i] = static_cast<char>(std::stoi(hex.substr(2 * i, 2), nullptr, 16));
    return id;
}

void make_id() {
    tuttiUniqueId id;
    must(tuttiGetUniqueId(&id), "tuttiGetUniqueId");
    std::string line = "id ";
    char digits[3];
    for (const char c : id.internal) {
        std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned>(static_cast<unsigned char>(c)));
        line += digits;
    }
    say(line);
}

class Rank {
  public:
    explicit Rank(std::map<std::string, std::string> options) : options_(std::move(options)) {
        world_.rank = std::stoi(options_.at("--rank"));
        world_.ranks = std::stoi(options_.at("--ranks"));
        if (options_.contains("--focus")) focus_ = options_.at("--focus");
        rejoins_ = options_.contains("--recover") && options_.at("--recover") == "rejoin";
    }

    Report run() {
        report_.descriptors[0] = descriptors();
        try {
            join();
            say("ready");
            steps_.emplace(world_, seed(), most_bytes);
            while (!told_to_stop()) steps_->run(report_.steps++, focus_);
            report_.recovered_ns = now_ns();
            steps_->clean_up();
            must(tuttiCommDestroy(std::exchange(world_.comm, nullptr)), "tuttiCommDestroy");
        } catch (const Failure& failure) {
            failed(failure);
        } catch (const Wrong& wrong) {
            report_.outcome = "wrong";
            report_.doing = doing();
            report_.text = wrong.what();
        }
        steps_.reset();
        report_.descriptors[1] = descriptors_that_stay();
        if (report_.descriptors[1] > report_.descriptors[0]) report_.open = open_descriptors();
        return report_;
    }

  private:
    bool goes_on_again() const { return options_.contains("--again") && options_.at("--again") == "yes"; }
    std::uint64_t seed() const { return std::stoull(options_.at("--seed")); }
    std::string doing() const { return steps_ ? steps_->doing() : "init"; }

    /// A session passes news on until the other ranks have left, too; its service keeps a few; a place where ranks did
    /// not all meet tells late-comers so for a while. How long to wait for that is the parent's to say.
    int descriptors_that_stay() const {
        const std::int64_t limit = now_ns() + std::stoll(options_.at("--linger-ms")) * 1'000'000;
        while (descriptors() > report_.descriptors[0] + of_the_service && now_ns() < limit) usleep(1000);
        return descriptors() - of_the_service;
    }
    static constexpr int of_the_service = 3;

    /// Follows orders until there is one to join.
    void join() {
        std::string line, word, hex;
        while (std::getline(std::cin, line)) {
            std::istringstream words(line);
            words >> word;
            if (word == "make") make_id();
            if (word != "join") continue;
            words >> hex >> world_.rank >> world_.ranks;
            tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
            config.timeoutMs = 30000;
            config.initTimeoutMs = options_.contains("--init-ms") ? std::stoi(options_.at("--init-ms")) : 30000;
            if (options_.contains("--transport") && options_.at("--transport") != "auto")
                config.transport = options_.at("--transport").c_str();
            return must(tuttiCommInitRankConfig(&world_.comm, world_.ranks, id_of(hex), world_.rank, &config),
                        "tuttiCommInitRankConfig");
        }
        throw std::runtime_error("there was no order to join");
    }

    /// Asks now and then, by a collective, whether one of the ranks was told to.
    bool told_to_stop() {
        if (report_.steps % 8 != 7) return false;
        pollfd input{STDIN_FILENO, POLLIN, 0};
        const int mine = poll(&input, 1, 0) > 0 ? 1 : 0;
        int any = 0;
        must(tuttiAllReduce(&mine, &any, 1, tuttiInt32, tuttiMax, world_.comm, nullptr), "tuttiAllReduce");
        report_.steps += any == 0;
        return any != 0;
    }

    void failed(const Failure& failure) {
        report_.outcome = "failed";
        report_.doing = doing();
        report_.call = failure.call;
        report_.text = failure.what();
        report_.code = failure.code;
        report_.error_ns = failure.at_ns;
        try {
            if (steps_) {
                if (!steps_->works_on()) steps_->memory().mark();
                report_.named_there = steps_->named_there();
                report_.members = steps_->members_there();
                learn_who_failed();
                if (!steps_->works_on() && !steps_->memory().untouched())
                    throw Wrong("a buffer was written to after its call had returned an error");
                steps_->clean_up();
                steps_->memory().mark();
            }
            go_on();
            if (steps_ && !steps_->memory().untouched())
                throw Wrong("a buffer was written to long after its call had returned an error");
        } catch (const Failure& again) {
            report_.trouble = again.call + ": " + again.what();
        } catch (const Wrong& wrong) {
            report_.trouble = std::string("wrong: ") + wrong.what();
        }
    }

    /// The communicator may hear of it some milliseconds after another one has failed.
    void learn_who_failed() {
        const std::int64_t limit = now_ns() + 1'000'000'000;
        do {
            int ranks[64], count = 0;
            must(tuttiCommGetFailedRanks(world_.comm, ranks, 64, &count), "tuttiCommGetFailedRanks");
            report_.failed.assign(ranks, ranks + count);
            report_.named_ns = now_ns();
            if (count == 0) usleep(200);
        } while (report_.failed.empty() && report_.named_ns < limit);
    }

    void go_on() {
        World next{nullptr, 0, 0};
        if (rejoins_) {
            if (world_.comm != nullptr) must(tuttiCommAbort(std::exchange(world_.comm, nullptr)), "tuttiCommAbort");
            say("failed");
            options_["--init-ms"] = "30000";
            join();
            next.comm = std::exchange(world_.comm, nullptr);
        } else {
            report_.calls_shrink_ns = now_ns();
            must(tuttiCommShrink(world_.comm, nullptr, 0, &next.comm, nullptr, TUTTI_SHRINK_ABORT), "tuttiCommShrink");
        }
        report_.shrunk_ns = now_ns();
        if (world_.comm != nullptr) learn_who_failed();  // maybe more than before
        must(tuttiCommCount(next.comm, &next.ranks), "tuttiCommCount");
        must(tuttiCommUserRank(next.comm, &next.rank), "tuttiCommUserRank");
        if (const int left =
                options_.contains("--left") ? std::stoi(options_.at("--left")) : std::stoi(options_.at("--ranks")) - 1;
            next.ranks != left)
            throw Wrong(std::to_string(next.ranks) + " ranks are left; " + std::to_string(left) + " were expected");
        Memory memory(32 * most_bytes);
        Dice own{seed(), static_cast<std::uint64_t>(next.rank), 7};
        for (std::uint64_t i = 0; i < 20; ++i) {
            memory.reset();
            const Call call =
                some_collective(next, Dice{seed(), i}.next() >> 8, Dice{seed(), i, 3}, own, memory, most_bytes);
            must(call.issue(nullptr), call.what.c_str());
            call.check();
        }
        report_.recovered_ns = now_ns();
        if (goes_on_again()) again(next);
        must(tuttiCommDestroy(next.comm), "tuttiCommDestroy");
        if (world_.comm != nullptr) must(tuttiCommDestroy(world_.comm), "tuttiCommDestroy");
    }

    static void expect_sum(tuttiComm_t comm, int ranks) {
        int one = 1, sum = 0;
        must(tuttiAllReduce(&one, &sum, 1, tuttiInt32, tuttiSum, comm, nullptr), "tuttiAllReduce");
        if (sum != ranks) throw Wrong(std::to_string(ranks) + " ranks have the sum " + std::to_string(sum));
    }

    /// Splits what is left into two, and shrinks it once more, without its first rank.
    static void again(const World& left) {
        tuttiComm_t part = nullptr;
        must(tuttiCommSplit(left.comm, left.rank % 2, 0, &part, nullptr), "tuttiCommSplit");
        expect_sum(part, (left.ranks + 1 - left.rank % 2) / 2);
        must(tuttiCommDestroy(part), "tuttiCommDestroy");
        const int first = 0;
        if (left.rank == first || left.ranks == 1) return;
        must(tuttiCommShrink(left.comm, &first, 1, &part, nullptr, TUTTI_SHRINK_DEFAULT), "tuttiCommShrink");
        expect_sum(part, left.ranks - 1);
        must(tuttiCommDestroy(part), "tuttiCommDestroy");
    }

    std::map<std::string, std::string> options_;
    std::string focus_ = "all";
    bool rejoins_ = false;
    World world_;
    std::optional<Steps> steps_;
    Report report_;
};

}  // namespace

int main(int argc, char** argv) {
    if (argc == 2 && std::strcmp(argv[1], "--kinds") == 0) {
        for (const std::string& kind : Steps::kinds()) say(kind);
        return 0;
    }
    std::map<std::string, std::string> options;
    for (int i = 1; i + 1 < argc; i += 2) options[argv[i]] = argv[i + 1];
    if (!options.contains("--rank") || !options.contains("--ranks") || !options.contains("--seed"))
        return std::cerr << "storm-rank --rank R --ranks N --seed S: see the head of rank.cpp\n", 2;
    say("up");
    try {
        say(Rank(options).run(), std::stoi(options.at("--rank")));
    } catch (const std::exception& error) {
        std::cerr << "storm-rank: " << error.what() << "\n";
        return 1;
    }
}
