#include <arpa/inet.h>
#include <dlfcn.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/caught.hpp"
#include "base/result.hpp"
#include "bootstrap/interfaces.hpp"
#include "bootstrap/launch.hpp"
#include "bootstrap/pmix.hpp"
#include "harness/skip.hpp"
#include "support.hpp"

#if defined(__SANITIZE_ADDRESS__)
/// PMIx_Init() forgets some bytes when it fails.
extern "C" const char* __lsan_default_suppressions() {
    return "leak:libpmix.so";
}
#endif

/// In the place of the C library's: nobody tells the address of one name.
extern "C" int getaddrinfo(const char* host, const char* service, const addrinfo* hints, addrinfo** found) {
    if (std::strcmp(host, "silent.invalid") == 0 && (hints->ai_flags & AI_NUMERICHOST) == 0)
        for (;;) pause();
    static const auto original = reinterpret_cast<decltype(&getaddrinfo)>(dlsym(RTLD_NEXT, "getaddrinfo"));
    return original(host, service, hints, found);
}

namespace tutti::test {
namespace {

using harness::has;

const std::string secret = "TUTTI_SECRET=000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

/// The environment with these variables, until it goes.
class Variables {
  public:
    explicit Variables(std::vector<std::string> all) : all_(std::move(all)) {
        for (std::string& v : all_) putenv(v.data());
    }
    ~Variables() {
        for (const std::string& v : all_) unsetenv(v.substr(0, v.find('=')).c_str());
    }

  private:
    std::vector<std::string> all_;
};

Launch launch(std::vector<std::string> variables) {
    const Variables set(std::move(variables));
    return Launch::from_environment();
}

/// Where the ranks meet.
std::string place(std::vector<std::string> variables) {
    return Rendezvous::of(launch(std::move(variables)).identity).local().text();
}

std::string refusal(std::vector<std::string> variables) {
    try {
        launch(std::move(variables));
        return "";
    } catch (const Error& e) {
        return e.code() == tuttiInvalidUsage ? e.what() : "another code";
    }
}

std::vector<std::string> torchrun(int rank, int ranks, const std::string& address = "127.0.0.1") {
    return {text("RANK=%d", rank),       text("WORLD_SIZE=%d", ranks),
            text("LOCAL_RANK=%d", rank), text("LOCAL_WORLD_SIZE=%d", ranks),
            "MASTER_ADDR=" + address,    "MASTER_PORT=29511"};
}

/// Joins the ranks of a job as processes that read these environments.
void check_job(const std::vector<std::vector<std::string>>& environments) {
    std::vector<RankProcess> all;
    for (const auto& e : environments) all.emplace_back(e);
    for (auto& p : all) CHECK(p.hear() == "joined");
    for (std::size_t r = 0; r < all.size(); ++r) CHECK(all[r].ask(text("offer 1 %zu", r)) == "ok");
    CHECK(all[0].ask(text("fetch %zu 1", all.size() - 1)) == text("%zu", all.size() - 1));
}

}  // namespace

TEST_CASE("without a launcher there is one rank") {
    const Launch l = launch({});
    CHECK(l.rank == 0);
    CHECK(l.ranks == 1);
    CHECK(l.launcher == "none");
    const auto s = join(l.identity, 0, 1);
    CHECK(s->info(0).size() == info_of(0).size());
    s->leave();
}

TEST_CASE("every launcher's numbers are read") {
    Launch l = launch(torchrun(3, 8));
    CHECK((l.rank == 3 && l.ranks == 8 && l.local_rank == 3 && l.local_ranks == 8));
    CHECK(l.launcher == "tutti-run or torchrun");
    l = launch({"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_RANK=1",
                "OMPI_COMM_WORLD_LOCAL_SIZE=2", "PMIX_NAMESPACE=job7"});
    CHECK((l.rank == 1 && l.ranks == 2 && l.local_rank == 1 && l.local_ranks == 2));
    CHECK(l.launcher == "Open MPI");
    l = launch(
        {"PMI_RANK=1", "PMI_SIZE=2", "MPI_LOCALRANKID=1", "MPI_LOCALNRANKS=2", "SLURM_PROCID=0", "SLURM_NTASKS=1"});
    CHECK((l.rank == 1 && l.ranks == 2 && l.launcher == "MPICH"));
    const std::vector<std::string> slurm = {"SLURM_PROCID=2", "SLURM_NTASKS=4", "SLURM_LOCALID=2", "SLURM_NNODES=1",
                                            "SLURM_JOB_ID=5"};
    CHECK(launch(slurm).launcher == "none");  // a batch script, not a step
    auto step = slurm;
    step.push_back("SLURM_STEP_ID=0");
    l = launch(step);
    CHECK((l.rank == 2 && l.ranks == 4 && l.local_ranks == 4 && l.launcher == "Slurm"));
}

TEST_CASE("one job meets where another did that is about to end") {
    // As in `a && b` on every rank: a rank of b may be there before rank 0's part of a has ended.
    auto zeroth = torchrun(0, 2), first = torchrun(1, 2);
    if (GENERATE(false, true))
        for (auto* e : {&zeroth, &first}) e->push_back(secret);
    RankProcess zero(zeroth), one(first);
    REQUIRE(zero.hear() == "joined");
    REQUIRE(one.hear() == "joined");
    const pid_t one_pid = one.pid();
    CHECK(one.ask("leave") == "ok");
    one.say("quit");
    one.wait();

    const std::string wanted = text("an earlier job is still there, whose rank 1 (pid %d", one_pid);
    const std::string why =
        told_in_time(wanted, [&](std::chrono::milliseconds limit) { return RankProcess(first, limit).hear(); });
    INFO(why);
    CHECK(has(why, "rank 1 could not reach the place where the ranks meet within "));
    CHECK(has(why, wanted));
    RankProcess next_one(first);
    CHECK(zero.ask("leave") == "ok");
    zero.say("quit");
    zero.wait();
    RankProcess next_zero(zeroth);
    CHECK(next_zero.hear() == "joined");
    CHECK(next_one.hear() == "joined");
}

TEST_CASE("the next job meets there, too, with another number of ranks; a second rank of the same job does not") {
    const int ranks = GENERATE(2, 4);
    const int early = GENERATE_COPY(0, ranks - 1);
    CAPTURE(ranks, early);
    std::vector<RankProcess> all;
    for (int r = 0; r < 3; ++r) all.emplace_back(torchrun(r, 3));
    for (auto& p : all) REQUIRE(p.hear() == "joined");
    const auto end = [](RankProcess& p) {
        CHECK(p.ask("leave") == "ok");
        p.say("quit");
        p.wait();
    };
    const std::string ended = text("an earlier job is still there, whose rank 2 (pid %d", all[2].pid());
    end(all[2]);

    for (const int twice : {0, 1}) {  // whose first one lives: nobody waits for its end
        RankProcess second(torchrun(twice, 3));
        CHECK(has(second.hear(), text("rank %d is there twice: as pid %d", twice, all[std::size_t(twice)].pid())));
    }
    const std::string why = told_in_time(
        ended, [&](std::chrono::milliseconds limit) { return RankProcess(torchrun(early, ranks), limit).hear(); });
    INFO(why);
    CHECK(has(why, ended));
    std::vector<RankProcess> next;
    next.emplace_back(torchrun(early, ranks));
    end(all[1]);
    end(all[0]);
    for (int r = 0; r < ranks; ++r)
        if (r != early) next.emplace_back(torchrun(r, ranks));
    for (auto& p : next) CHECK(p.hear() == "joined");
}

TEST_CASE("a server of PMIx that does not answer is needed only where nothing else says who the ranks are") {
    const std::vector<std::string> server = {"PMIX_NAMESPACE=nobody", "PMIX_RANK=0"};
    CHECK(has(refusal(server), "PMIX_RANK is set, but the server that knows the other ranks can't be asked"));
    CHECK(launch({"PMIX_RANK=0"}).launcher == "none");
    auto known = server;
    for (const char* more : {"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_SIZE=2"})
        known.push_back(more);
    CHECK(launch(known).launcher == "Open MPI");
    CHECK(launch({"PMIX_NAMESPACE=slurm.pmix.5.0", "PMIX_RANK=2", "SLURM_PROCID=2", "SLURM_NTASKS=4", "SLURM_NNODES=1",
                  "SLURM_STEP_ID=0", "SLURM_JOB_ID=5"})
              .rank == 2);
}

TEST_CASE("a server of PMIx that hears and does not answer is given up after the time-out") {
    const Fd server(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in here{};
    here.sin_family = AF_INET;
    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof here;
    REQUIRE(bind(server.get(), reinterpret_cast<const sockaddr*>(&here), size) == 0);
    REQUIRE(listen(server.get(), 8) == 0);
    REQUIRE(getsockname(server.get(), reinterpret_cast<sockaddr*>(&here), &size) == 0);
    std::vector<std::string> variables = {
        "PMIX_NAMESPACE=nobody",     "PMIX_RANK=0",          "TUTTI_INIT_TIMEOUT_MS=700",
        "PMIX_SECURITY_MODE=native", "PMIX_GDS_MODULE=hash", "PMIX_BFROP_BUFFER_TYPE=PMIX_BFROP_BUFFER_NON_DESC"};
    for (const char* version : {"2", "21", "3", "4", "41"})
        variables.push_back(text("PMIX_SERVER_URI%s=nobody.0;tcp4://127.0.0.1:%u", version, ntohs(here.sin_port)));
    RankProcess rank(variables);
    const std::string said = rank.hear();
    if (has(said, "this build of Tutti has no PMIx") || has(said, "libpmix.so.2")) return harness::skip("PMIx");
    CHECK(has(said,
              "PMIX_RANK is set, but the server that knows the other ranks can't be asked: it has not answered "
              "PMIx_Init within 700 ms (TUTTI_INIT_TIMEOUT_MS)"));
    CHECK(rank.hear() == "(gone)");
}

TEST_CASE("a name server that does not answer is given up after the time-out") {
    RankProcess rank({"RANK=1", "WORLD_SIZE=2", "LOCAL_WORLD_SIZE=1", "MASTER_ADDR=silent.invalid", "MASTER_PORT=29511",
                      "TUTTI_INIT_TIMEOUT_MS=700", secret});
    CHECK(has(rank.hear(), text("error %d environment variable MASTER_ADDR is 'silent.invalid', whose address this "
                                "host's name service has not told within 700 ms",
                                tuttiTimeout)));
    CHECK(rank.hear() == "(gone)");
}

TEST_CASE("an environment that contradicts itself is refused by the variable's name") {
    CHECK(has(refusal({"RANK=0"}), "RANK is set, but WORLD_SIZE is not"));
    CHECK(has(refusal({"WORLD_SIZE=2"}), "WORLD_SIZE is set, but RANK is not"));
    CHECK(has(refusal({"PMI_RANK=1"}), "PMI_SIZE"));
    CHECK(has(refusal(torchrun(8, 8)), "RANK is 8, but WORLD_SIZE is only 8"));
    CHECK(has(refusal({"RANK=x", "WORLD_SIZE=2"}), "RANK is 'x'"));
    CHECK(has(refusal({"RANK=-1", "WORLD_SIZE=2"}), "RANK is '-1'"));
    CHECK(has(refusal({"RANK=0", "WORLD_SIZE=2 ranks"}), "WORLD_SIZE is '2 ranks'"));
    CHECK(has(refusal({"RANK=0", "WORLD_SIZE=2", "LOCAL_WORLD_SIZE=3"}), "LOCAL_WORLD_SIZE is '3'"));
    CHECK(has(refusal({"RANK=0", "WORLD_SIZE=2", "LOCAL_WORLD_SIZE=2", "LOCAL_RANK=2"}), "LOCAL_RANK is '2'"));
    CHECK(has(refusal({"RANK=0", "WORLD_SIZE=2", "LOCAL_WORLD_SIZE=2"}), "MASTER_ADDR is not set"));
}

TEST_CASE("ranks on several hosts need a secret and a place to meet") {
    auto far = torchrun(1, 4, "192.0.2.1");
    far[3] = "LOCAL_WORLD_SIZE=2";
    CHECK(has(refusal(far), "set TUTTI_SECRET"));
    CHECK(has(refusal(far), "openssl rand -hex 32"));
    far.push_back(secret);
    CHECK(refusal(far) == "");
    const Rendezvous m = Rendezvous::of(launch(far).identity);
    CHECK(m.tcp.text() == "192.0.2.1:29511");
    CHECK(!m.has(Rendezvous::one_host));
    far.push_back("TORCHELASTIC_USE_AGENT_STORE=True");
    CHECK(Rendezvous::of(launch(far).identity).tcp.text() == "192.0.2.1:29512");
    far[4] = "MASTER_ADDR=no-such-host.invalid";
    CHECK(has(refusal(far), "MASTER_ADDR is 'no-such-host.invalid'"));
    far[4] = "MASTER_ADDR=";
    CHECK(has(refusal(far), "MASTER_ADDR is not set"));
}

TEST_CASE("ranks meet in one place, whatever numbers their launcher's processes have on their hosts") {
    const std::vector<std::string> place = {"MASTER_ADDR=192.0.2.1", "MASTER_PORT=29511", secret};
    std::vector<std::string> mpich = {"PMI_RANK=1", "PMI_SIZE=4", "MPI_LOCALNRANKS=2"};
    std::vector<std::string> openmpi = {"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=4",
                                        "OMPI_COMM_WORLD_LOCAL_SIZE=2"};
    for (auto* of_two_hosts : {&mpich, &openmpi}) of_two_hosts->insert(of_two_hosts->end(), place.begin(), place.end());
    // srun --mpi=pmi2, on one host, of a shell that calls the program.
    const std::vector<std::string> pmi2 = {"PMI_RANK=1", "PMI_SIZE=4", "SLURM_STEP_NUM_NODES=1", "SLURM_JOB_ID=5",
                                           "SLURM_STEP_ID=0"};
    for (const auto& variables : {mpich, openmpi, pmi2}) {
        CAPTURE(variables.front(), variables.size());
        int ends[2];
        REQUIRE(pipe(ends) == 0);
        const pid_t child = fork();  // a rank with another parent, whose calls count from the same number on
        if (child == 0) {
            Identity its;
            shielded("a rank", [&] { its = launch(variables).identity; });
            _exit(write(ends[1], its.bytes.data(), its.bytes.size()) == std::ssize(its.bytes) ? 0 : 1);
        }
        const Identity mine = launch(variables).identity;
        Identity theirs;
        CHECK(read(ends[0], theirs.bytes.data(), theirs.bytes.size()) == std::ssize(theirs.bytes));
        CHECK(theirs.bytes == mine.bytes);
        int status = -1;
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(status == 0);
        close(ends[0]);
        close(ends[1]);
    }
}

TEST_CASE("a host's own name in NCCL_COMM_ID, which many systems map to the loopback, is where other hosts reach it") {
    const Variables set({secret});
    bootstrap::Address here = bootstrap::rendezvous_interface();
    here.port = 29511;
    CHECK(Rendezvous::of(Identity::at("0x7f.1:29511")).tcp.text() == here.text());  // a name of the loopback
    CHECK(Rendezvous::of(Identity::at("192.0.2.1:29511")).tcp.text() == "192.0.2.1:29511");
    CHECK(Rendezvous::of(Identity::at("127.0.0.1:29511")).has(Rendezvous::one_host));
    CHECK(Rendezvous::of(Identity::at("127.0.0.1:29511")).has(Rendezvous::comm_id));
}

TEST_CASE("a secret that is none is refused and not repeated") {
    for (const std::string bad : {"cafe", "zz0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"}) {
        auto variables = torchrun(0, 2);
        variables.push_back("TUTTI_SECRET=" + bad);
        const std::string told = refusal(variables);
        CHECK(has(told, "64 hexadecimal digits"));
        CHECK(!has(told, bad));
    }
}

TEST_CASE("jobs, users' secrets and repeated calls meet in different places") {
    // Calls count, so that a second communicator of a process meets elsewhere.
    CHECK(place(torchrun(0, 2)) != place(torchrun(0, 2)));
}

TEST_CASE("calls that were refused do not count: once the environment is right, a rank meets those that wait for it") {
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    const pid_t waits = fork();  // a process whose environment was right from the beginning
    if (waits == 0) {
        const std::string there = place(torchrun(0, 2));
        _exit(write(ends[1], there.data(), there.size()) == static_cast<ssize_t>(there.size()) ? 0 : 1);
    }
    close(ends[1]);
    auto wrong = torchrun(1, 2);
    wrong.push_back("TUTTI_SECRET=cafe");
    for (const auto& environment : {wrong, {"RANK=1"}, {"RANK=1", "WORLD_SIZE=2", "LOCAL_WORLD_SIZE=2"}})
        CHECK(!refusal(environment).empty());
    char there[256];
    const ssize_t size = read(ends[0], there, sizeof there);
    REQUIRE(size > 0);
    CHECK(place(torchrun(1, 2)) == std::string(there, static_cast<std::size_t>(size)));
    close(ends[0]);
    int status = -1;
    CHECK((waitpid(waits, &status, 0) == waits && status == 0));
}

TEST_CASE("the ranks of one host meet without a secret or a port") {
    check_job({torchrun(0, 3), torchrun(1, 3), torchrun(2, 3)});
    std::vector<std::vector<std::string>> mpi;
    for (int r = 0; r < 3; ++r)
        mpi.push_back({text("OMPI_COMM_WORLD_RANK=%d", r), "OMPI_COMM_WORLD_SIZE=3", "OMPI_COMM_WORLD_LOCAL_SIZE=3",
                       "PMIX_NAMESPACE=test job"});
    check_job(mpi);
    for (int r = 0; r < 3; ++r)
        mpi[static_cast<std::size_t>(r)] = {text("PMI_RANK=%d", r), "PMI_SIZE=3", "MPI_LOCALNRANKS=3"};
    check_job(mpi);
    for (int r = 0; r < 3; ++r)
        mpi[static_cast<std::size_t>(r)] = {text("SLURM_PROCID=%d", r), "SLURM_NTASKS=3",  "SLURM_NNODES=2",
                                            "SLURM_STEP_NUM_NODES=1",   "SLURM_JOB_ID=17", "SLURM_STEP_ID=2"};
    check_job(mpi);
}

TEST_CASE("with a secret, ranks meet by TCP at the master's address") {
    // Said to be on several hosts, so they use TCP, although they are on one.
    const std::string here = bootstrap::Rendezvous::of(Identity::create()).tcp.text();
    std::vector<std::vector<std::string>> all;
    for (int r = 0; r < 3; ++r) {
        auto v = torchrun(r, 3, here.substr(0, here.rfind(':')));
        v[3] = "LOCAL_WORLD_SIZE=1";
        v[2] = "LOCAL_RANK=0";
        v.push_back(secret);
        all.push_back(v);
    }
    check_job(all);
}

TEST_CASE("a rendezvous is closed when the server that is to tell where it is fails") {
    struct Failing : bootstrap::Pmix {
        Process process() override { return {0, 2, 0, 2}; }
        bootstrap::Bytes from_first(const std::string&, bootstrap::View mine, std::chrono::milliseconds) override {
            std::ranges::copy(mine, told.bytes.begin());
            if (throws) fail(tuttiSystemError, "rank 0: PMIx_Fence failed: LOST-CONNECTION (-61)");
            return bootstrap::Bytes(3);  // what can't be an identity
        }
        bool throws = true;
        Identity told;
    } pmix;
    pmix.throws = GENERATE(true, false);
    Launch launch;
    launch.ranks = launch.local_ranks = 2;
    CHECK_THROWS_AS(bootstrap::meet_by(pmix, launch, 0), Error);
    CHECK(join_error(pmix.told, 1, 2, 20s).find("gave up") != std::string::npos);
}

}  // namespace tutti::test
