// A rank that is late: rank 1 sleeps so many seconds before its first 64 MiB all-reduce, while the others wait in
// theirs; or it is stopped (SIGSTOP) for so long in the middle of its third one. All ranks check all results.
//
//     tutti-run -n 3 late SECONDS [stop]
#define _GNU_SOURCE
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include "tutti/tutti.h"

enum { count = 16 * 1024 * 1024, calls = 4, stopped_call = 2 };

static void pass(double seconds) {
    struct timespec t = {(time_t)seconds, (long)(fmod(seconds, 1) * 1e9)};
    while (nanosleep(&t, &t) != 0) {
    }
}

/// A process that stops this one for so long, soon after a byte was written to the descriptor.
static int stopper(double seconds) {
    int ends[2];
    if (pipe(ends) != 0) return -1;
    const pid_t target = getpid();
    const pid_t child = fork();
    if (child != 0) {
        close(ends[0]);
        return child < 0 ? -1 : ends[1];
    }
    close(ends[1]);
    char go;
    if (read(ends[0], &go, 1) == 1) {
        pass(0.02);
        kill(target, SIGSTOP);
        pass(seconds);
        kill(target, SIGCONT);
    }
    _exit(0);
}

static int fail(const char* what) {
    fprintf(stderr, "%s: %s\n", what, tuttiGetLastError(NULL));
    return 1;
}

int main(int argc, char** argv) {
    if (argc < 2) return fprintf(stderr, "late SECONDS [stop]\n"), 2;
    const double seconds = atof(argv[1]);
    const int stop = argc > 2 && strcmp(argv[2], "stop") == 0;
    const int go = stop ? stopper(seconds) : -1;
    if (stop && go < 0) return fprintf(stderr, "no process to stop this one\n"), 1;
    tuttiComm_t comm;
    int rank, ranks;
    if (tuttiCommInitEnv(&comm, NULL) != tuttiSuccess) return fail("tuttiCommInitEnv");
    tuttiCommUserRank(comm, &rank);
    tuttiCommCount(comm, &ranks);
    float* data = malloc(sizeof(float) * count);
    if (data == NULL) return fprintf(stderr, "no memory\n"), 1;
    for (int call = 0; call < calls; ++call) {
        for (int i = 0; i < count; ++i) data[i] = (float)((i % 1000 + call) * (rank + 1));
        if (rank == 1 && call == 0 && !stop) pass(seconds);
        if (rank == 1 && call == stopped_call && stop && write(go, "", 1) != 1) return 1;
        if (tuttiAllReduce(data, data, count, tuttiFloat32, tuttiSum, comm, NULL) != tuttiSuccess)
            return fail("tuttiAllReduce");
        const int factor = ranks * (ranks + 1) / 2;
        for (int i = 0; i < count; ++i)
            if (data[i] != (float)((i % 1000 + call) * factor))
                return fprintf(stderr, "rank %d, call %d: element %d is %g\n", rank, call, i, data[i]), 1;
    }
    free(data);
    if (tuttiCommDestroy(comm) != tuttiSuccess) return fail("tuttiCommDestroy");
    printf("rank %d: right\n", rank);
    return 0;
}
