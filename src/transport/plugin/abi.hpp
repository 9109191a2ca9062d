// The binary interface of NCCL's network plugins, versions 8 to 12: the layout of the tables of functions that a plugin
// exports as ncclNetPlugin_v8 ... ncclNetPlugin_v12. Written from descriptions of it. plugin.hpp says what the
// functions promise. Only adapt.cpp (and the tests' own plugin) knows that there are several versions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti::plugin::abi {

using Result = int;  // ncclResult_t: 0 is success, 7 "in progress"
inline constexpr Result success = 0;

inline constexpr std::size_t handle_bytes = 128;       // of the handle that listen() fills; connect() writes to it, too
inline constexpr int most_requests = 32;               // under way on one connection
inline constexpr std::size_t most_bytes_v8 = 1 << 30;  // of one message; from version 9 on the properties say it
inline constexpr int host_memory = 1;                  // a type for regMr(), and a bit of `pointers`
inline constexpr int gpu_memory = 2;                   // a type for regMrDmaBuf()
inline constexpr int dma_buf = 4;                      // a bit of `pointers`: the device has regMrDmaBuf()
inline constexpr int unset = -1;                       // a field of Config without a value

using Log = void (*)(int level, unsigned long flags, const char* file, int line, const char* format, ...);
using Profile = Result (*)(void** event, int type, void* parent, std::int64_t id, void* data);

/// A communicator's settings; from version 10 on.
struct Config {
    int traffic_class;
};

/// The devices that a virtual device joins.
template <int Devices>
struct Virtual {
    int count;
    int devices[Devices];
};

struct Properties8 {
    char* name;
    char* pci_path;
    std::uint64_t guid;
    int pointers;  // bits: the memory that it supports
    int registers_globally;
    int speed;  // Mbit/s
    int port;
    float latency;  // us
    int most_connections;
    int most_receives;  // buffers in one call of irecv()
    int device_type;
    int device_version;
};

template <int Devices>
struct Properties9 {
    char* name;
    char* pci_path;
    std::uint64_t guid;
    int pointers;
    int registers_globally;
    int force_flush;
    int speed;
    int port;
    float latency;
    int most_connections;
    int most_receives;
    int device_type;
    int device_version;
    Virtual<Devices> parts;
    std::size_t most_bytes;  // of a message
    std::size_t most_bytes_collective;
};

struct Properties11 : Properties9<4> {
    int most_in_request;
};

struct Properties12 : Properties9<8> {
    int most_in_request;
    std::int16_t rail, plane;
};

// Groups of functions that are the same in all versions. They lie between and behind those that differ.
template <class Properties>
struct Head {
    Result (*devices)(int* count);
    Result (*properties)(int device, Properties* out);
};

struct Memory {
    Result (*register_memory)(void* connection, void* data, std::size_t size, int type, void** handle);
    Result (*register_dmabuf)(void* connection, void* data, std::size_t size, int type, std::uint64_t offset, int fd,
                              void** handle);
    Result (*forget_memory)(void* connection, void* handle);
};

struct Closing {
    Result (*test)(void* request, int* done, int* sizes);
    Result (*close_send)(void* connection);
    Result (*close_receive)(void* connection);
    Result (*close_listen)(void* listening);
    Result (*device_handle)(void* connection, void* handle, void** out);  // may be null
    Result (*consumed)(void* connection, int count, void* request);       // may be null
};

using Accept = Result (*)(void* listening, void** connection, void** for_device);
using Listen = Result (*)(int device, void* handle, void** listening);
using ListenIn = Result (*)(void* context, int device, void* handle, void** listening);

struct Net8 {
    static constexpr int version = 8;
    using Properties = Properties8;
    const char* name;
    Result (*init)(Log log);
    Head<Properties> head;
    Listen listen;
    Result (*connect)(int device, void* handle, void** connection, void** for_device);
    Accept accept;
    Memory memory;
    Result (*send)(void* connection, void* data, int size, int tag, void* memory, void** request);
    Result (*receive)(void* connection, int count, void** data, int* sizes, int* tags, void** memory, void** request);
    Result (*flush)(void* connection, int count, void** data, int* sizes, void** memory, void** request);
    Closing closing;
};

using Send9 = Result (*)(void* connection, void* data, std::size_t size, int tag, void* memory, void** request);
using Receive9 = Result (*)(void* connection, int count, void** data, std::size_t* sizes, int* tags, void** memory,
                            void** request);
using Send10 = Result (*)(void* connection, void* data, std::size_t size, int tag, void* memory, void* event,
                          void** request);
using Receive10 = Result (*)(void* connection, int count, void** data, std::size_t* sizes, int* tags, void** memory,
                             void** events, void** request);
using Flush = Result (*)(void* connection, int count, void** data, int* sizes, void** memory, void** request);

struct Net9 {
    static constexpr int version = 9;
    using Properties = Properties9<4>;
    const char* name;
    Result (*init)(Log log);
    Head<Properties> head;
    Listen listen;
    Result (*connect)(int device, void* handle, void** connection, void** for_device);
    Accept accept;
    Memory memory;
    Send9 send;
    Receive9 receive;
    Flush flush;
    Closing closing;
    Result (*make_virtual)(int* device, Virtual<4>* parts);
};

struct Net10 {
    static constexpr int version = 10;
    using Properties = Properties9<4>;
    const char* name;
    Result (*init)(Log log, Profile profile);
    Head<Properties> head;
    Listen listen;
    Result (*connect)(int device, Config* config, void* handle, void** connection, void** for_device);
    Accept accept;
    Memory memory;
    Send10 send;
    Receive10 receive;
    Flush flush;
    Closing closing;
    Result (*make_virtual)(int* device, Virtual<4>* parts);
};

/// Versions 11 and 12, which have contexts: one for each communicator, says the original.
template <int Version, class PropertiesType, int Devices>
struct Net11 {
    static constexpr int version = Version;
    using Properties = PropertiesType;
    const char* name;
    Result (*init)(void** context, std::uint64_t id, Config* config, Log log, Profile profile);
    Head<Properties> head;
    ListenIn listen;
    Result (*connect)(void* context, int device, void* handle, void** connection, void** for_device);
    Accept accept;
    Memory memory;
    Send10 send;
    Receive10 receive;
    Flush flush;
    Closing closing;
    Result (*make_virtual)(int* device, Virtual<Devices>* parts);  // may be null
    Result (*finalize)(void* context);
    Result (*set_attributes)(void* context, void* attributes);  // may be null
};

using NetV11 = Net11<11, Properties11, 4>;
using NetV12 = Net11<12, Properties12, 8>;

// The layout on 64-bit systems, counted from the descriptions.
static_assert(sizeof(void*) == 8 && sizeof(Properties8) == 64 && sizeof(Properties9<4>) == 104);
static_assert(sizeof(Properties11) == 112 && sizeof(Properties12) == 128);
static_assert(offsetof(Properties8, speed) == 32 && offsetof(Properties8, device_version) == 56);
static_assert(offsetof(Properties9<4>, speed) == 36 && offsetof(Properties9<4>, parts) == 64 &&
              offsetof(Properties9<4>, most_bytes) == 88 && offsetof(Properties9<8>, most_bytes) == 104);
static_assert(sizeof(Net8) == 19 * 8 && sizeof(Net9) == 20 * 8 && sizeof(Net10) == 20 * 8);
static_assert(sizeof(NetV11) == 22 * 8 && sizeof(NetV12) == 22 * 8);
static_assert(offsetof(Net8, send) == 10 * 8 && offsetof(NetV11, send) == 10 * 8);
static_assert(offsetof(Net8, closing) == 13 * 8 && offsetof(NetV12, finalize) == 20 * 8);

}  // namespace tutti::plugin::abi
