/* The loop that times every library alike: float32 sum, out of place, each rank pinned to a core of its own as far as there
 * are cores, warm-up, batches, and the slowest rank's mean per batch. Rank 0 prints one JSON line per size. */
#ifndef LOOP_H_
#define LOOP_H_

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct library {
    int rank, ranks;
    void (*sum)(const float* in, float* out, size_t count); /* the call that is timed */
    double (*largest)(double mine);                         /* over all ranks */
    void* (*allocate)(size_t bytes);                        /* NULL: page-aligned private memory */
};

/* Pins this process to core (local rank modulo cores). To be called first: memory comes from the core's own node then. */
void pin_to_core(int local_rank);

/* sizes: "8,1024,..." in bytes. seconds: the time to spend per size. */
void time_sizes(const struct library* library, const char* sizes, double seconds);

double now_seconds(void);

#ifdef __cplusplus
}
#endif

#endif /* LOOP_H_ */
