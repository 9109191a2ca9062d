// Turns a plugin of any version of the interface into a Plugin. All differences between versions are handled here.
#include <dlfcn.h>

#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <utility>

#include "base/log.hpp"
#include "base/os.hpp"
#include "base/result.hpp"
#include "transport/plugin/plugin.hpp"

namespace tutti::plugin {
namespace {

using abi::Result;

/// The log function that plugins get, which are C and take no exceptions. level: NCCL's: 2 is a warning, 5 a trace.
void log_for_plugin(int level, unsigned long, const char* file, int line, const char* format, ...) {
    const Level ours = level <= 2 ? Level::warn : level >= 5 ? Level::trace : Level::info;
    if (format == nullptr || !logs(ours)) return;
    char said[1024];
    std::va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(said, sizeof said, format, arguments);
    va_end(arguments);
    const char* const folder_end = file == nullptr ? nullptr : std::strrchr(file, '/');
    const char* const where = file == nullptr ? "" : folder_end == nullptr ? file : folder_end + 1;
    log(ours, "network plugin, %s:%d: %s", where, line, said);
}

Result no_profile(void**, int, void*, std::int64_t, void*) {
    return abi::success;
}

/// Serializes init, finalize, devices and getProperties: several communicators' threads may call them, and plugins need
/// not be thread-safe there.
std::mutex& start_mutex() {
    static std::mutex instance;
    return instance;
}

template <class Table>
class Adapted : public Plugin {
    static constexpr bool profiles = Table::version >= 10;
    static constexpr bool has_contexts = Table::version >= 11;

  public:
    Adapted(const Table& table, std::string file) : t_(table), file_(std::move(file)) {
        check_complete();
        if constexpr (has_contexts) {
            first_ = context();  // devices can't be asked for before init
        } else {
            const std::lock_guard lock(start_mutex());
            if constexpr (profiles)
                check("init", t_.init(log_for_plugin, no_profile));
            else
                check("init", t_.init(log_for_plugin));
        }
    }

    std::shared_ptr<void> context() override {
        if constexpr (has_contexts) {
            auto end = [finalize = t_.finalize,
                        complaint = failure("finalize", "it returned an error")](void* context) {
                const std::lock_guard lock(start_mutex());
                if (finalize != nullptr && finalize(context) != abi::success) log(Level::warn, "%s", complaint.c_str());
            };
            std::uint64_t id = 0;  // tells communicators apart; unlike NCCL's, it differs between ranks
            random_bytes(&id, sizeof id);
            void* made = nullptr;
            {
                const std::lock_guard lock(start_mutex());
                check("init", t_.init(&made, id, &config_, log_for_plugin, no_profile));
            }
            return {made, std::move(end)};  // without the lock: if there is no memory for it, this calls end(made)
        } else {
            return nullptr;
        }
    }

    const std::string& file() const override { return file_; }
    std::string name() const override { return t_.name == nullptr ? "" : t_.name; }
    int version() const override { return Table::version; }

    int devices() override {
        const std::lock_guard lock(start_mutex());
        int count = 0;
        check("devices", t_.head.devices(&count));
        return count;
    }

    Device device(int number) override {
        const std::lock_guard lock(start_mutex());
        // A plugin built for a later draft of its version may write more fields than are known here.
        struct {
            typename Table::Properties p;
            std::byte more[256];
        } room{};
        check("getProperties", t_.head.properties(number, &room.p));
        Device d;
        d.number = number;
        d.name = room.p.name == nullptr ? "" : room.p.name;
        d.host_memory = (room.p.pointers & abi::host_memory) != 0;
        d.gpu_memory = (room.p.pointers & abi::dma_buf) != 0;
        if constexpr (requires { room.p.force_flush; }) d.needs_flush = room.p.force_flush != 0;
        d.speed = room.p.speed;
        d.most_connections = room.p.most_connections;
        if constexpr (requires { room.p.most_bytes; })
            d.most_bytes = room.p.most_bytes;
        else
            d.most_bytes = abi::most_bytes_v8;
        return d;
    }

    void* listen([[maybe_unused]] void* context, int device, Handle& out) override {
        void* listening = nullptr;
        if constexpr (has_contexts)
            check("listen", t_.listen(context, device, out.bytes.data(), &listening));
        else
            check("listen", t_.listen(device, out.bytes.data(), &listening));
        if (listening == nullptr) complain("listen", "success, but nothing that listens");
        return listening;
    }

    void* connect([[maybe_unused]] void* context, int device, Handle& to) override {
        void *connection = nullptr, *for_device = nullptr;
        Result result;
        if constexpr (has_contexts)
            result = t_.connect(context, device, to.bytes.data(), &connection, &for_device);
        else if constexpr (profiles)
            result = t_.connect(device, &config_, to.bytes.data(), &connection, &for_device);
        else
            result = t_.connect(device, to.bytes.data(), &connection, &for_device);
        check("connect", result);
        return connection;
    }

    void* accept(void* listening) override {
        void *connection = nullptr, *for_device = nullptr;
        check("accept", t_.accept(listening, &connection, &for_device));
        return connection;
    }

    void* register_memory(void* connection, void* data, std::size_t size) override {
        void* memory = nullptr;
        check("regMr", t_.memory.register_memory(connection, data, size, abi::host_memory, &memory));
        return memory;
    }
    void* register_gpu_memory(void* connection, void* data, std::size_t size, int fd) override {
        void* memory = nullptr;
        check("regMrDmaBuf", t_.memory.register_dmabuf(connection, data, size, abi::gpu_memory, 0, fd, &memory));
        return memory;
    }
    bool can_take_gpus() const override { return t_.memory.register_dmabuf != nullptr; }
    void forget_memory(void* connection, void* memory) override {
        warn("deregMr", t_.memory.forget_memory(connection, memory));
    }

    void* send(void* connection, void* data, std::size_t size, void* memory) override {
        void* request = nullptr;
        if constexpr (profiles)
            check("isend", t_.send(connection, data, size, 0, memory, nullptr, &request));
        else if constexpr (Table::version >= 9)
            check("isend", t_.send(connection, data, size, 0, memory, &request));
        else
            check("isend", t_.send(connection, data, static_cast<int>(size), 0, memory, &request));
        return request;
    }

    void* receive(void* connection, void* data, std::size_t size, void* memory) override {
        void* request = nullptr;
        int tag = 0;
        if constexpr (profiles) {
            void* event = nullptr;
            check("irecv", t_.receive(connection, 1, &data, &size, &tag, &memory, &event, &request));
        } else if constexpr (Table::version >= 9) {
            check("irecv", t_.receive(connection, 1, &data, &size, &tag, &memory, &request));
        } else {
            int small = static_cast<int>(size);
            check("irecv", t_.receive(connection, 1, &data, &small, &tag, &memory, &request));
        }
        return request;
    }

    void* flush(void* connection, void* data, std::size_t size, void* memory) override {
        void* request = nullptr;
        int bytes = static_cast<int>(size);
        check("iflush", t_.flush(connection, 1, &data, &bytes, &memory, &request));
        return request;
    }
    bool can_flush() const override { return t_.flush != nullptr; }

    bool is_done(void* request, std::size_t& size) override {
        int done = 0;
        int sizes[8] = {};  // one is used; some plugins clear as many as a receive could have buffers
        check("test", t_.closing.test(request, &done, sizes));
        if (done == 0) return false;  // sizes may hold anything
        size = sizes[0] < 0 ? 0 : static_cast<std::size_t>(sizes[0]);
        return true;
    }

    void close_send(void* connection) override { warn("closeSend", t_.closing.close_send(connection)); }
    void close_receive(void* connection) override { warn("closeRecv", t_.closing.close_receive(connection)); }
    void close_listen(void* listening) override { warn("closeListen", t_.closing.close_listen(listening)); }

  private:
    std::string failure(const char* call, const char* why) const {
        return text("network plugin %s (%s, interface version %d): %s failed: %s", file_.c_str(), name().c_str(),
                    Table::version, call, why);
    }
    [[noreturn]] void complain(const char* call, const char* why) const {
        throw Error(tuttiSystemError, failure(call, why));
    }
    static std::string words(Result result) {
        const char* const known[] = {"",
                                     "unhandled CUDA error",
                                     "system error",
                                     "internal error",
                                     "invalid argument",
                                     "invalid usage",
                                     "remote error",
                                     "in progress"};
        const bool is_known = result > 0 && result < static_cast<int>(std::size(known));
        return text("it returned %d (%s)%s", result, is_known ? known[result] : "unknown",
                    logs(Level::info) ? "" : "; NCCL_DEBUG=INFO or TUTTI_DEBUG=INFO lets it say more");
    }
    void check(const char* call, Result result) const {
        if (result != abi::success) complain(call, words(result).c_str());
    }
    void warn(const char* call, Result result) const {
        if (result != abi::success) log(Level::warn, "%s", failure(call, words(result).c_str()).c_str());
    }

    /// Throws if a function that this transport calls is null; others may be.
    void check_complete() const {
        const std::pair<const char*, bool> needed[] = {
            {"init", t_.init != nullptr},
            {"devices", t_.head.devices != nullptr},
            {"getProperties", t_.head.properties != nullptr},
            {"listen", t_.listen != nullptr},
            {"connect", t_.connect != nullptr},
            {"accept", t_.accept != nullptr},
            {"regMr", t_.memory.register_memory != nullptr},
            {"deregMr", t_.memory.forget_memory != nullptr},
            {"isend", t_.send != nullptr},
            {"irecv", t_.receive != nullptr},
            {"test", t_.closing.test != nullptr},
            {"closeSend", t_.closing.close_send != nullptr},
            {"closeRecv", t_.closing.close_receive != nullptr},
            {"closeListen", t_.closing.close_listen != nullptr},
        };
        for (const auto& [call, there] : needed)
            if (!there) complain(call, "it has no such function");
    }

    const Table& t_;
    const std::string file_;
    abi::Config config_{abi::unset};  // plugins read it, and may keep its address
    std::shared_ptr<void> first_;
};

template <class Table>
std::shared_ptr<Plugin> adapt_version(void* library, const std::string& file) {
    const void* const table = dlsym(library, text("ncclNetPlugin_v%d", Table::version).c_str());
    if (table == nullptr) return nullptr;
    return std::make_shared<Adapted<Table>>(*static_cast<const Table*>(table), file);
}

}  // namespace

std::shared_ptr<Plugin> adapt(void* library, const std::string& file) {
    for (const auto version : {adapt_version<abi::NetV12>, adapt_version<abi::NetV11>, adapt_version<abi::Net10>,
                               adapt_version<abi::Net9>, adapt_version<abi::Net8>})
        if (auto plugin = version(library, file)) return plugin;
    std::string others;
    for (int version = 1; version < 40; ++version)
        if (dlsym(library, text("ncclNetPlugin_v%d", version).c_str()) != nullptr)
            others += (others.empty() ? "" : ", ") + text("v%d", version);
    fail(tuttiSystemError,
         others.empty() ? "%s is not a network plugin of NCCL: it does not export ncclNetPlugin_v8 to _v12%s"
                        : "%s is a network plugin of NCCL for other versions of the interface (it needs one of v8 to "
                          "v12, and has %s)",
         file.c_str(), others.c_str());
}

}  // namespace tutti::plugin
