// NCCL's functions that tell the settings in effect: here those of docs/environment.md.
#include <charconv>
#include <cstring>
#include <memory>
#include <vector>

#include "nccl/shared.hpp"

/// What a handle points to: a key of Tutti's table of settings.
struct ncclParam {
    const char* key;
};

using namespace tutti::nccl;

namespace {

const char* const* all_keys(int& count) {
    const char* const* keys = nullptr;
    count = 0;
    tuttiParamGetAllKeys(&keys, &count);
    return keys;
}

/// The handles, one for each key, never freed: the same key always has the same handle.
std::vector<ncclParam>& handles() {
    static auto* all = [] {
        int count = 0;
        const char* const* keys = all_keys(count);
        auto made = std::make_unique<std::vector<ncclParam>>();
        for (int i = 0; i < count; ++i) made->push_back({keys[i]});
        return made.release();
    }();
    return *all;
}

template <class Number>
ncclResult_t number(ncclParamHandle_t handle, Number* out) {
    if (handle == nullptr || out == nullptr)
        return refuse(ncclInvalidArgument, "ncclParamGet*: the handle or the place for the value is NULL");
    const char* text = nullptr;
    if (const tuttiResult_t result = tuttiParamGet(handle->key, &text)) return converted(result);
    const char* const end = text + std::strlen(text);
    Number value{};
    const auto [read, error] = std::from_chars(text, end, value);
    if (text == end || read != end || error != std::errc{})
        return refuse(ncclInvalidArgument, std::string(handle->key) + " is '" + text + "', which is no number of " +
                                               std::to_string(8 * sizeof(Number)) + " bits");
    *out = value;
    return ncclSuccess;
}

}  // namespace

NCCL_API(ncclResult_t, ncclParamBind, (ncclParamHandle_t * out, const char* key)) {
    if (out == nullptr || key == nullptr) return refuse(ncclInvalidArgument, "ncclParamBind: an argument is NULL");
    for (ncclParam& one : handles()) {
        if (std::strcmp(one.key, key) != 0) continue;
        *out = &one;
        return ncclSuccess;
    }
    return refuse(ncclInvalidArgument, std::string("ncclParamBind: there is no setting of the name ") + key);
}

#define NCCL_PARAM_GET(Name, Number)                                                       \
    NCCL_API(ncclResult_t, ncclParamGet##Name, (ncclParamHandle_t handle, Number * out)) { \
        return number(handle, out);                                                        \
    }
NCCL_PARAM_GET(I8, int8_t)
NCCL_PARAM_GET(I16, int16_t)
NCCL_PARAM_GET(I32, int32_t)
NCCL_PARAM_GET(I64, int64_t)
NCCL_PARAM_GET(U8, uint8_t)
NCCL_PARAM_GET(U16, uint16_t)
NCCL_PARAM_GET(U32, uint32_t)
NCCL_PARAM_GET(U64, uint64_t)
#undef NCCL_PARAM_GET

NCCL_API(ncclResult_t, ncclParamGetStr, (ncclParamHandle_t handle, const char** out)) {
    if (handle == nullptr || out == nullptr) return refuse(ncclInvalidArgument, "ncclParamGetStr: an argument is NULL");
    return converted(tuttiParamGet(handle->key, out));
}

NCCL_API(ncclResult_t, ncclParamGet, (ncclParamHandle_t handle, void* out, int room, int* length)) {
    if (handle == nullptr || out == nullptr || length == nullptr)
        return refuse(ncclInvalidArgument, "ncclParamGet: an argument is NULL");
    const char* text = nullptr;
    if (const tuttiResult_t result = tuttiParamGet(handle->key, &text)) return converted(result);
    *length = static_cast<int>(std::strlen(text) + 1);
    if (*length > room)
        return refuse(ncclInvalidArgument,
                      std::string("ncclParamGet: ") + handle->key + " takes " + std::to_string(*length) + " bytes");
    std::memcpy(out, text, static_cast<std::size_t>(*length));
    return ncclSuccess;
}

NCCL_API(ncclResult_t, ncclParamGetParameter, (const char* key, const char** value, int* length)) {
    if (key == nullptr || value == nullptr || length == nullptr)
        return refuse(ncclInvalidArgument, "ncclParamGetParameter: an argument is NULL");
    const tuttiResult_t result = tuttiParamGet(key, value);
    if (result == tuttiSuccess) *length = static_cast<int>(std::strlen(*value));
    return converted(result);
}

NCCL_API(ncclResult_t, ncclParamGetAllParameterKeys, (const char*** table, int* length)) {
    if (table == nullptr || length == nullptr)
        return refuse(ncclInvalidArgument, "ncclParamGetAllParameterKeys: an argument is NULL");
    static thread_local std::vector<const char*> keys;  // the caller may write to it
    int count = 0;
    const char* const* all = all_keys(count);
    keys.assign(all, all + count);
    *table = keys.data();
    *length = count;
    return ncclSuccess;
}

NCCL_API(void, ncclParamDumpAll, (void)) {
    tuttiParamDumpAll();
}
