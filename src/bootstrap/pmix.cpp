#include "bootstrap/pmix.hpp"

#include <dlfcn.h>
#include <pmix.h>
#include <sodium.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <type_traits>

#include "base/condition.hpp"
#include "base/config.hpp"
#include "base/os.hpp"
#include "base/result.hpp"
#include "bootstrap/in_time.hpp"

namespace tutti::bootstrap {
namespace {

/// The functions of libpmix, which is never unloaded because it has a thread.
struct Library {
    decltype(&PMIx_Init) init = nullptr;
    decltype(&PMIx_Finalize) finalize = nullptr;
    decltype(&PMIx_Put) put = nullptr;
    decltype(&PMIx_Commit) commit = nullptr;
    decltype(&PMIx_Fence_nb) fence = nullptr;
    decltype(&PMIx_Get) get = nullptr;
    decltype(&PMIx_Error_string) error_string = nullptr;
    std::string why;  // the library can't be used; empty if it can

    Library() {
        void* const library = dlopen("libpmix.so.2", RTLD_NOW | RTLD_LOCAL);
        if (library == nullptr) {
            const char* const said = dlerror();
            why = said == nullptr ? "libpmix.so.2 can't be loaded" : said;
            return;
        }
        const auto find = [&](auto& function, const char* name) {
            function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
            if (function == nullptr) why = text("libpmix.so.2 has no %s", name);
        };
        find(init, "PMIx_Init");
        find(finalize, "PMIx_Finalize");
        find(put, "PMIx_Put");
        find(commit, "PMIx_Commit");
        find(fence, "PMIx_Fence_nb");
        find(get, "PMIx_Get");
        find(error_string, "PMIx_Error_string");
    }
};

const Library& library() {
    static const auto* const instance = new Library;
    return *instance;
}

/// Shared by the thread that waits for a fence and the fence's callback in the library's thread; either may end last.
struct Fence {
    std::mutex mutex;
    Condition over;
    std::optional<pmix_status_t> status;
};

void fence_over(pmix_status_t status, void* data) {
    const std::unique_ptr<std::shared_ptr<Fence>> fence(static_cast<std::shared_ptr<Fence>*>(data));
    const std::lock_guard lock((*fence)->mutex);
    (*fence)->status = status;
    (*fence)->over.notify_one();
}

pmix_info_t directive(const char* key, int seconds) {
    pmix_info_t info{};
    std::strncpy(info.key, key, PMIX_MAX_KEYLEN);
    info.value.type = seconds < 0 ? PMIX_BOOL : PMIX_INT;
    if (seconds < 0)
        info.value.data.flag = true;
    else
        info.value.data.integer = seconds;
    return info;
}

class Client : public Pmix {
  public:
    explicit Client(const pmix_proc_t& self) : self_(self) {}
    ~Client() override {
        // Not in a forked child, nor where it might wait for ever.
        if (process_ == getpid() && !silent_) library().finalize(nullptr, 0);
    }

    Process process() override {
        Process p{};
        p.rank = self_.rank;
        p.ranks = number(PMIX_RANK_WILDCARD, PMIX_JOB_SIZE).value_or(0);
        p.local_ranks = number(PMIX_RANK_WILDCARD, PMIX_LOCAL_SIZE).value_or(0);
        p.local_rank = number(self_.rank, PMIX_LOCAL_RANK).value_or(0);
        return p;
    }

    Bytes from_first(const std::string& key, View mine, std::chrono::milliseconds timeout) override {
        if (self_.rank == 0) check("PMIx_Put", put(key, mine, timeout));
        check("PMIx_Commit", ask("PMIx_Commit", timeout, [] { return library().commit(); }));
        pass_fence(timeout);
        if (self_.rank == 0) return Bytes(mine.begin(), mine.end());
        const int seconds = 1 + static_cast<int>(timeout.count() / 1000);
        const auto [status, value] = get(0, key, directive(PMIX_TIMEOUT, seconds), timeout);
        check("PMIx_Get", status);
        if (value == nullptr || value->type != PMIX_BYTE_OBJECT)
            fail(tuttiSystemError, "rank 0 has left something else with PMIx than rank %u expected", self_.rank);
        const auto* const bytes = reinterpret_cast<const std::byte*>(value->data.bo.bytes);
        Bytes out(bytes, bytes + value->data.bo.size);
        std::free(value->data.bo.bytes);
        std::free(value);
        return out;
    }

  private:
    pmix_proc_t peer(pmix_rank_t rank) const {
        pmix_proc_t p = self_;
        p.rank = rank;
        return p;
    }

    void check(const char* call, pmix_status_t status) const {
        if (status != PMIX_SUCCESS)
            fail(tuttiSystemError, "rank %u: %s failed: %s (%d)", self_.rank, call, library().error_string(status),
                 status);
    }

    /// The answer to a call of PMIx, which has no limit of its own.
    template <class Call>
    std::invoke_result_t<Call&> ask(const char* name, std::chrono::milliseconds timeout, Call call) {
        auto answer = in_time(timeout, std::move(call));
        if (answer) return std::move(*answer);
        silent_ = true;
        fail(tuttiTimeout, "rank %u: PMIx's server has not answered %s within %lld ms (TUTTI_INIT_TIMEOUT_MS)",
             self_.rank, name, static_cast<long long>(timeout.count()));
    }

    pmix_status_t put(const std::string& key, View mine, std::chrono::milliseconds timeout) {
        const auto wipe = [](Bytes* bytes) {  // a secret, perhaps
            sodium_memzero(bytes->data(), bytes->size());
            delete bytes;
        };
        const std::shared_ptr<Bytes> copy(new Bytes(mine.begin(), mine.end()), wipe);
        return ask("PMIx_Put", timeout, [key, copy] {
            pmix_value_t value{};
            value.type = PMIX_BYTE_OBJECT;
            value.data.bo.bytes = reinterpret_cast<char*>(copy->data());
            value.data.bo.size = copy->size();
            return library().put(PMIX_GLOBAL, key.c_str(), &value);
        });
    }

    /// What the server knows of a rank.
    struct Got {
        pmix_status_t status;
        pmix_value_t* value;
    };
    Got get(pmix_rank_t of, const std::string& key, const std::optional<pmix_info_t>& limit,
            std::chrono::milliseconds timeout) {
        return ask(("PMIx_Get of " + key).c_str(), timeout, [whose = peer(of), key, limit] {
            Got out{};
            out.status = library().get(&whose, key.c_str(), limit ? &*limit : nullptr, limit ? 1 : 0, &out.value);
            return out;
        });
    }

    std::optional<std::uint32_t> number(pmix_rank_t of, const char* key) {
        const auto [status, value] = get(of, key, std::nullopt, std::chrono::milliseconds(config().init_timeout_ms));
        if (status != PMIX_SUCCESS || value == nullptr) return std::nullopt;
        std::optional<std::uint32_t> out;
        if (value->type == PMIX_UINT32) out = value->data.uint32;
        if (value->type == PMIX_UINT16) out = value->data.uint16;
        std::free(value);
        return out;
    }

    /// A barrier of all ranks of the job. Servers may ignore PMIX_TIMEOUT, so the time-out is kept here.
    void pass_fence(std::chrono::milliseconds timeout) {
        const auto fence = std::make_shared<Fence>();
        const pmix_info_t collect = directive(PMIX_COLLECT_DATA, -1);
        auto* const data = new std::shared_ptr<Fence>(fence);
        const pmix_status_t begun = library().fence(nullptr, 0, &collect, 1, fence_over, data);
        if (begun != PMIX_SUCCESS) delete data;
        if (begun != PMIX_OPERATION_SUCCEEDED) check("PMIx_Fence", begun);
        if (begun != PMIX_SUCCESS) return;
        std::unique_lock lock(fence->mutex);
        if (!fence->over.wait_for(lock, timeout, [&] { return fence->status.has_value(); }))
            fail(tuttiTimeout,
                 "rank %u: not all ranks of the job came to PMIx's fence within %lld ms (TUTTI_INIT_TIMEOUT_MS)",
                 self_.rank, static_cast<long long>(timeout.count()));
        check("PMIx_Fence", *fence->status);
    }

    const pmix_proc_t self_;
    const pid_t process_ = getpid();
    std::atomic<bool> silent_{false};  // the server has not answered
};

}  // namespace

Pmix* Pmix::connect(std::string& why) {
    struct Connection {
        std::unique_ptr<Pmix> client;
        std::string why;
        Connection() {
            why = library().why;
            if (!why.empty()) return;
            struct Begun {
                pmix_proc_t self;
                pmix_status_t status;
            };
            const int timeout_ms = config().init_timeout_ms;
            const auto begun = in_time(std::chrono::milliseconds(timeout_ms), [] {
                Begun b{};
                b.status = library().init(&b.self, nullptr, 0);
                return b;
            });
            if (!begun)
                why = text("it has not answered PMIx_Init within %d ms (TUTTI_INIT_TIMEOUT_MS)", timeout_ms);
            else if (begun->status == PMIX_SUCCESS)
                client = std::make_unique<Client>(begun->self);
            else
                why = text("PMIx_Init failed: %s (%d)", library().error_string(begun->status), begun->status);
        }
    };
    static auto& connection = *new Connection;
    [[maybe_unused]] static const int finalized = std::atexit([] { connection.client.reset(); });
    why = connection.why;
    return connection.client.get();
}

}  // namespace tutti::bootstrap
