#include "heap.hpp"

#include <execinfo.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <span>

#include "world.hpp"

extern "C" {
extern void* __libc_stack_end;
extern char __executable_start;
}

namespace sim {

thread_local bool allocates_apart = false;

namespace {

constexpr std::size_t most_blocks = 1 << 16, most_frames = 24;
constexpr std::size_t most_kept = std::size_t{2} << 20;  // bytes that a process keeps for good: caches of the tuner
constexpr int most_told = 6;

struct Block {
    std::uintptr_t at;  // 0: free; 1: was used
    std::size_t size;
    bool referred;
};
struct Lists {
    std::array<Block, most_blocks> blocks;
    std::array<std::array<void*, most_frames>, most_blocks> frames;  // by the same numbers
    // While it is looked what is referred to.
    std::array<Block*, most_blocks> by_address, unread;
    std::size_t count, unread_count;
} lists;
bool tracking = false, with_places = false;
std::atomic_flag lock;

struct Locked {
    Locked() {
        while (lock.test_and_set(std::memory_order_acquire)) continue;  // a thread that has ended may be giving back
    }
    ~Locked() { lock.clear(std::memory_order_release); }
};

std::size_t first_slot(std::uintptr_t at) {
    return (at >> 4) * 0x9e3779b97f4a7c15u >> 48;
}

// ---- what is referred to, from where a program can get at it: as a leak sanitizer does

void look(const void* begin, const void* end) {
    const std::span all(lists.by_address.data(), lists.count);
    if (all.empty()) return;
    const std::uintptr_t least = all.front()->at, most = all.back()->at + all.back()->size;
    const auto unit = sizeof(std::uintptr_t);
    auto at = (reinterpret_cast<std::uintptr_t>(begin) + unit - 1) / unit * unit;
    for (; at + unit <= reinterpret_cast<std::uintptr_t>(end); at += unit) {
        std::uintptr_t word;
        std::memcpy(&word, reinterpret_cast<const void*>(at), unit);
        if (word < least || word > most) continue;
        Block& block = **(std::ranges::upper_bound(all, word, {}, &Block::at) - 1);
        if (word > block.at + block.size || block.referred) continue;
        block.referred = true;
        lists.unread[lists.unread_count++] = &block;
    }
}

int look_at_module(dl_phdr_info* info, std::size_t, void*) {
    for (const ElfW(Phdr) & part : std::span(info->dlpi_phdr, info->dlpi_phnum)) {
        const auto* const begin = reinterpret_cast<const char*>(info->dlpi_addr + part.p_vaddr);
        const auto* const locals = static_cast<const char*>(info->dlpi_tls_data);
        if (part.p_type == PT_TLS && locals != nullptr) look(locals, locals + part.p_memsz);
        if (part.p_type != PT_LOAD || (part.p_flags & PF_W) == 0) continue;
        const char *const end = begin + part.p_memsz, *const own = reinterpret_cast<const char*>(&lists);
        const bool has_own = begin <= own && own < end;
        look(begin, has_own ? own : end);
        if (has_own) look(own + sizeof lists, end);
    }
    return 0;
}

__attribute__((noinline)) void look_everywhere() {
    dl_iterate_phdr(look_at_module, nullptr);
    look(__builtin_frame_address(0), __libc_stack_end);
    const char* const self = static_cast<const char*>(__builtin_thread_pointer());
    look(self, self + 2304);  // pthread_setspecific
    for_each_stack(look);
    while (lists.unread_count > 0) {
        const Block& block = *lists.unread[--lists.unread_count];
        look(reinterpret_cast<const void*>(block.at), reinterpret_cast<const void*>(block.at + block.size));
    }
}

void tell_place(const Block& block) {
    std::string command = "addr2line -Cfpse /proc/" + std::to_string(getpid()) + "/exe";
    for (const void* frame : lists.frames[static_cast<std::size_t>(&block - lists.blocks.data())]) {
        char address[32];
        std::snprintf(address, sizeof address, " %#lx",
                      static_cast<unsigned long>(static_cast<const char*>(frame) - &__executable_start - 1));
        if (frame != nullptr) command += address;
    }
    world->note("process %d leaves %zu bytes%s, taken by", this_process(), block.size,
                block.referred ? "" : " that nothing refers to");
    FILE* const output = popen((command + " 2>/dev/null").c_str(), "r");
    char line[4096];
    for (int lines = 0; output != nullptr && std::fgets(line, sizeof line, output) != nullptr; ++lines)
        if (line[0] != '?' && lines < 16) world->note("    %.*s", static_cast<int>(std::strcspn(line, "\n")), line);
    if (output != nullptr) pclose(output);
}

}  // namespace

void track_heap(bool places) {
    void* warm[1];
    backtrace(warm, 1);  // the first one allocates
    with_places = places;
    tracking = true;
}

void* taken(void* block, std::size_t size) noexcept {
    if (!tracking || block == nullptr || allocates_apart) return block;
    const auto at = reinterpret_cast<std::uintptr_t>(block);
    const Locked locked;
    std::size_t slot = first_slot(at);
    while (lists.blocks[slot].at > 1) slot = (slot + 1) % most_blocks;
    lists.blocks[slot] = {at, size, false};
    if (with_places) {
        allocates_apart = true;
        lists.frames[slot].fill(nullptr);
        backtrace(lists.frames[slot].data(), most_frames);
        allocates_apart = false;
    }
    return block;
}

void given_back(void* block) noexcept {
    if (!tracking || block == nullptr) return;
    const auto at = reinterpret_cast<std::uintptr_t>(block);
    const Locked locked;
    for (std::size_t slot = first_slot(at); lists.blocks[slot].at != 0; slot = (slot + 1) % most_blocks)
        if (lists.blocks[slot].at == at) return void(lists.blocks[slot].at = 1);
}

std::string heap_left() {
    tracking = false;
    std::size_t bytes = 0, lost = 0, lost_bytes = 0;
    for (Block& block : lists.blocks)
        if (block.at > 1) lists.by_address[lists.count++] = &block;
    const std::span left(lists.by_address.data(), lists.count);
    std::ranges::sort(left, {}, &Block::at);
    look_everywhere();
    for (const Block* block : left) {
        bytes += block->size;
        if (!block->referred) ++lost, lost_bytes += block->size;
    }
    const bool too_much = lost == 0 && bytes > most_kept;
    std::ranges::sort(left, std::greater(), &Block::size);
    int told = 0;
    if (with_places)
        for (const Block* block : left)
            if ((!block->referred || too_much) && told++ < most_told) tell_place(*block);
    if (lost > 0)
        return " " + std::to_string(lost) + " blocks of memory that nothing refers to, " + std::to_string(lost_bytes) +
               " bytes";
    return too_much ? " " + std::to_string(bytes) + " bytes of memory" : "";
}

}  // namespace sim
