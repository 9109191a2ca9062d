/* The loop that times every library alike: one collective of float32, sums if it reduces, out of place, each rank
 * pinned to a core of its own as far as there are cores, warm-up, batches, and of each batch the slowest rank's mean.
 * Rank 0 prints one JSON line per size. */
#ifndef LOOP_H_
#define LOOP_H_

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct collective {
    const char* name;
    int blocks_in, blocks_out; /* whether that buffer has a block for each rank, in their order, or is one block */
    int sums;                  /* over all ranks; the others copy: block q of the output is of rank q */
    int rooted;                /* only rank 0 has an input; in place: both buffers are one */
};

/* "all_reduce", "all_gather", "reduce_scatter", "broadcast" or "all_to_all"; any other name ends the process. */
const struct collective* collective_named(const char* name);

struct call { /* what is timed; count: the elements of a block */
    const char* collective;
    void (*run)(const float* in, float* out, size_t count);
};

struct library {
    int rank, ranks;
    const struct call* calls;        /* of the collectives that it has; the last one's name is NULL */
    double (*largest)(double mine);  /* over all ranks */
    void* (*allocate)(size_t bytes); /* NULL: page-aligned private memory */
};

struct effort {
    double seconds; /* per size, about */
    int batches;    /* per size, of one operation at least */
};

struct effort effort_of(const char* seconds, const char* batches);

/* Pins this process to core (local rank modulo cores). To be called first, so that its memory is near that core. */
void pin_to_core(int local_rank);

/* sizes: "8,1024,..." in bytes of the larger of a rank's two buffers, which is rounded down to whole blocks of at least
 * one element; what is printed is the size that was asked for. With COMPARE_TOUCH in the environment every rank writes
 * its input before each call and reads its output after it, as programs do; what is printed is what the calls add to
 * the time of a loop that touches as much. So a result that lies in another core's cache costs the library that left it
 * there.
 * With COMPARE_LINE, the path of an empty file that all ranks share, rank 0 also prints how long a cache line took from
 * the core of rank 0 to that of rank 1 before each batch and after the last one ("line_ns"). Some virtual machines move
 * their processors, and that changes within seconds. */
void time_sizes(const struct library* library, const char* collective, const char* sizes, const struct effort* effort);

double now_seconds(void);

/* The median of 21 batches of rounds / 20 calls of act(argument), in microseconds of one; the first batch is no part.
 */
double median_us(void (*act)(void* argument), void* argument, long rounds);

#ifdef __cplusplus
}
#endif

#endif /* LOOP_H_ */
