/* The floor: a collective among processes that is a program and no library. It knows two buffers, one type and one
 * host, checks nothing and waits as long as all live. plain RANKS copy|zero-copy COLLECTIVE SIZES SECONDS BATCHES
 *
 * Up to 48 bytes travel in the cache line of the flag. An all-reduce of up to 4 KiB publishes every rank's vector, and
 * every rank sums all of them. Above, rank r sums slice r:
 *   copy        a piece at a time: all copy their piece into shared memory, sum their slice there, copy the others out
 *   zero-copy   all read each other's inputs and write into each other's outputs, which lie in shared memory
 * Of the other collectives, each rank copies or sums what is for it
 *   copy        out of shared memory, a piece at a time: the others write their next piece meanwhile
 *   zero-copy   out of the others' inputs */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __AVX512F__
#include <immintrin.h>
#endif

#include "loop.h"

enum { most_ranks = 16, in_line = 12, flat_floats = 1024, piece_floats = 32 * 1024, around_floats = 1024 * 1024 };

struct line {
    _Alignas(64) atomic_uint turn;
    float values[in_line];
};

struct place { /* of a rank; what a single meeting protects alternates between two */
    struct line lines[2];
    _Alignas(128) atomic_uint turn;
    _Alignas(128) double time;
    _Alignas(4096) float vectors[2][flat_floats];
    _Alignas(4096) float piece[piece_floats];
    _Alignas(4096) float results[piece_floats];
    _Alignas(4096) float parts[2][piece_floats];
};

static const struct collective* collective;
static struct place* places;
static char* buffers; /* of all ranks, which take theirs in the same order */
static size_t room, taken;
static int ranks, rank, crowded;
static unsigned turn;

static void wait_for(atomic_uint* word, unsigned least) {
    while ((int)(atomic_load_explicit(word, memory_order_acquire) - least) < 0) {
        if (crowded) sched_yield();
#ifdef __x86_64__
        else
            __builtin_ia32_pause();
#endif
    }
}

static void meet(void) {
    atomic_store_explicit(&places[rank].turn, ++turn, memory_order_release);
    for (int i = 1; i < ranks; ++i) wait_for(&places[(rank + i) % ranks].turn, turn);
}

/* Each sink gets the sum of n sources, added up in their order. */
static inline __attribute__((always_inline)) void add(int n, float* const* to, int sinks, const float* const* from,
                                                      size_t count, int around) {
    size_t i = 0;
#ifdef __AVX512F__
    if (around)
        for (; i + 16 <= count; i += 16) {
            __m512 sum = _mm512_loadu_ps(from[0] + i);
            for (int k = 1; k < n; ++k) sum = _mm512_add_ps(sum, _mm512_loadu_ps(from[k] + i));
            for (int s = 0; s < sinks; ++s) _mm512_stream_ps(to[s] + i, sum);
        }
    for (; i + 16 <= count; i += 16) {
        __m512 sum = _mm512_loadu_ps(from[0] + i);
        for (int k = 1; k < n; ++k) sum = _mm512_add_ps(sum, _mm512_loadu_ps(from[k] + i));
        for (int s = 0; s < sinks; ++s) _mm512_storeu_ps(to[s] + i, sum);
    }
#else
    (void)around;
#endif
    for (; i < count; ++i) {
        float sum = from[0][i];
        for (int k = 1; k < n; ++k) sum += from[k][i];
        for (int s = 0; s < sinks; ++s) to[s][i] = sum;
    }
}

static void sum_up(float* const* to, int sinks, const float* const* from, size_t count, int around) {
    if (ranks == 2) return add(2, to, sinks, from, count, around);
    if (ranks == 4) return add(4, to, sinks, from, count, around);
    if (ranks == 8) return add(8, to, sinks, from, count, around);
    add(ranks, to, sinks, from, count, around);
}

static void sum_lines(const float* in, float* out, size_t count) {
    struct line* mine = &places[rank].lines[++turn % 2];
    memcpy(mine->values, in, count * sizeof *in);
    atomic_store_explicit(&mine->turn, turn, memory_order_release);
    for (int i = 1; i < ranks; ++i) wait_for(&places[(rank + i) % ranks].lines[turn % 2].turn, turn);
    for (size_t i = 0; i < count; ++i) {
        float sum = places[0].lines[turn % 2].values[i];
        for (int r = 1; r < ranks; ++r) sum += places[r].lines[turn % 2].values[i];
        out[i] = sum;
    }
    atomic_store_explicit(&places[rank].turn, turn, memory_order_relaxed); /* for meet() */
}

static void sum_flat(const float* in, float* out, size_t count) {
    const float* from[most_ranks];
    const unsigned side = (turn + 1) % 2;
    memcpy(places[rank].vectors[side], in, count * sizeof *in);
    meet();
    for (int r = 0; r < ranks; ++r) from[r] = places[r].vectors[side];
    sum_up(&out, 1, from, count, 0);
}

static size_t slice(size_t count, int r) { /* where slice r begins */
    const size_t lines = (count + 15) / 16, begin = lines * (size_t)r / (size_t)ranks * 16;
    return begin < count ? begin : count;
}

static void sum_copying(const float* in, float* out, size_t count) {
    if (count <= in_line) return sum_lines(in, out, count);
    if (count <= flat_floats) return sum_flat(in, out, count);
    for (size_t done = 0; done < count; done += piece_floats) {
        const size_t piece = count - done < piece_floats ? count - done : piece_floats;
        const size_t begin = slice(piece, rank), length = slice(piece, rank + 1) - begin;
        const float* from[most_ranks];
        float* to[] = {places[rank].results + begin, out + done + begin};
        memcpy(places[rank].piece, in + done, piece * sizeof *in);
        meet();
        for (int r = 0; r < ranks; ++r) from[r] = places[r].piece + begin;
        sum_up(to, 2, from, length, 0);
        meet();
        for (int i = 1; i < ranks; ++i) {
            const int r = (rank + i) % ranks;
            const size_t at = slice(piece, r);
            memcpy(out + done + at, places[r].results + at, (slice(piece, r + 1) - at) * sizeof *out);
        }
    }
}

/* Where rank r has what this one has at `mine`. */
static float* of_rank(int r, const float* mine) {
    return (float*)((char*)mine + ((ptrdiff_t)r - rank) * (ptrdiff_t)room);
}

static void sum_in_place(const float* in, float* out, size_t count) {
    const size_t begin = slice(count, rank), length = slice(count, rank + 1) - begin;
    const float* from[most_ranks];
    float* to[most_ranks];
    if (count <= in_line) return sum_lines(in, out, count);
    if (count <= flat_floats) return sum_flat(in, out, count);
    for (int r = 0; r < ranks; ++r) {
        from[r] = of_rank(r, in) + begin;
        to[r] = of_rank((rank + r) % ranks, out) + begin;
    }
    meet();
    sum_up(to, ranks, from, length, count >= around_floats);
#ifdef __AVX512F__
    _mm_sfence();
#endif
    meet();
}

/* Of a broadcast, all read what rank 0 writes; else everybody reads what everybody writes. */
static int writes(int r) {
    return !collective->rooted || r == 0;
}

static int blocks(int one_each) {
    return one_each ? ranks : 1;
}

/* Where in an input, or a part of it, this rank's block begins. */
static size_t mine_at(size_t count) {
    return collective->blocks_in ? (size_t)rank * count : 0;
}

/* from: for this rank, of every rank that writes. */
static void put_together(const float* const* from, float* out, size_t stride, size_t count) {
    const int n = blocks(collective->blocks_out);
    if (collective->sums) return sum_up(&out, 1, from, count, count >= around_floats);
    for (int i = 0; i < n; ++i) {
        const int r = (rank + i) % n;
        float* to = out + (size_t)r * stride;
        if (to != from[r]) memcpy(to, from[r], count * sizeof *out);
    }
}

/* `count` elements of each block, of `stride`. What a rank writes stays until all have come to the next turn but one.
 */
static void pass_on(const float* in, float* out, size_t stride, size_t count) {
    const int n = blocks(collective->blocks_in), in_lines = (size_t)n * count <= in_line;
    const float* from[most_ranks];
    const unsigned side = ++turn % 2;
    struct place* mine = &places[rank];
    if (collective->rooted && rank == 0) /* nobody else makes it wait */
        for (int r = 1; r < ranks; ++r) wait_for(&places[r].turn, turn - 2);
    if (writes(rank)) {
        float* to = in_lines ? mine->lines[side].values : mine->parts[side];
        for (int r = 0; r < n; ++r) memcpy(to + (size_t)r * count, in + (size_t)r * stride, count * sizeof *to);
        atomic_store_explicit(in_lines ? &mine->lines[side].turn : &mine->turn, turn, memory_order_release);
    }
    for (int i = 0; i < ranks; ++i) {
        const int r = (rank + i) % ranks;
        if (!writes(r)) continue;
        wait_for(in_lines ? &places[r].lines[side].turn : &places[r].turn, turn);
        from[r] = (in_lines ? places[r].lines[side].values : places[r].parts[side]) + mine_at(count);
    }
    if (writes(rank)) from[rank] = in + mine_at(stride);
    put_together(from, out, stride, count);
    if (in_lines || !writes(rank)) atomic_store_explicit(&mine->turn, turn, memory_order_release);
}

static void exchange_copying(const float* in, float* out, size_t count) {
    const size_t part = piece_floats / (size_t)blocks(collective->blocks_in) / 16 * 16;
    for (size_t done = 0; done < count; done += part)
        pass_on(in + done, out + done, count, count - done < part ? count - done : part);
}

static void exchange_in_place(const float* in, float* out, size_t count) {
    const float* from[most_ranks];
    if ((size_t)blocks(collective->blocks_in) * count <= in_line) return pass_on(in, out, count, count);
    ++turn;
    if (writes(rank)) atomic_store_explicit(&places[rank].turn, turn, memory_order_release);
    for (int i = 0; i < ranks; ++i) {
        const int r = (rank + i) % ranks;
        if (!writes(r)) continue;
        wait_for(&places[r].turn, turn);
        from[r] = of_rank(r, in) + mine_at(count);
    }
    put_together(from, out, count, count);
    if (!collective->rooted) return meet(); /* all have read its input */
    if (rank != 0) atomic_store_explicit(&places[rank].turn, turn, memory_order_release);
    for (int r = 1; r < ranks && rank == 0; ++r) wait_for(&places[r].turn, turn);
}

static void* shared(size_t bytes) {
    void* memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) abort();
    return memory;
}

static void* in_shared_memory(size_t bytes) {
    void* memory = buffers + (size_t)rank * room + taken;
    taken += (bytes + 4095) / 4096 * 4096;
    return memory;
}

static double largest(double mine) {
    double most = mine;
    places[rank].time = mine;
    meet();
    for (int r = 0; r < ranks; ++r)
        if (places[r].time > most) most = places[r].time;
    meet();
    return most;
}

/* Of rank 0: who fails ends all, for the others would wait for ever. */
static void on_end(int signal) {
    int status;
    (void)signal;
    while (waitpid(-1, &status, WNOHANG) > 0)
        if (status != 0) _exit(1);
}

int main(int argc, char** argv) {
    const struct sigaction watching = {.sa_handler = on_end};
    cpu_set_t usable;
    if (argc != 7 || atoi(argv[1]) < 1 || atoi(argv[1]) > most_ranks) {
        fprintf(stderr, "usage: plain RANKS copy|zero-copy COLLECTIVE SIZES SECONDS BATCHES (at most %d ranks)\n",
                most_ranks);
        return 2;
    }
    ranks = atoi(argv[1]);
    collective = collective_named(argv[3]);
    crowded = sched_getaffinity(0, sizeof usable, &usable) == 0 && ranks > CPU_COUNT(&usable);
    places = shared(sizeof *places * (size_t)ranks);
    for (const char* size = argv[4]; size != NULL; size = strchr(size, ',') ? strchr(size, ',') + 1 : NULL)
        room += 2 * (((size_t)strtoull(size, NULL, 10) + 4095) / 4096 * 4096);
    const int copies = strcmp(argv[2], "copy") == 0;
    buffers = copies ? NULL : shared(room * (size_t)ranks);
    sigaction(SIGCHLD, &watching, NULL);
    for (int child = 1; child < ranks && rank == 0; ++child)
        if (fork() == 0) rank = child;
    if (rank != 0) prctl(PR_SET_PDEATHSIG, SIGKILL);
    pin_to_core(rank);
    void (*exchange)(const float*, float*, size_t) = copies ? exchange_copying : exchange_in_place;
    const struct call calls[] = {{"all_reduce", copies ? sum_copying : sum_in_place},
                                 {"all_gather", exchange},
                                 {"reduce_scatter", exchange},
                                 {"broadcast", exchange},
                                 {"all_to_all", exchange},
                                 {NULL, NULL}};
    const struct library plain = {rank, ranks, calls, largest, copies ? NULL : in_shared_memory};
    const struct effort effort = effort_of(argv[5], argv[6]);
    time_sizes(&plain, collective->name, argv[4], &effort);
    meet(); /* nobody leaves while another may still fail */
    if (rank != 0) _exit(0);
    while (wait(NULL) > 0 || errno == EINTR) continue;
    return 0;
}
