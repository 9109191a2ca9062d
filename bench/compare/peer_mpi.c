/* MPI's collectives in the loop. peer_mpi COLLECTIVE SIZES SECONDS BATCHES
 * COMPARE_THREADS in the environment: as a process of several threads, which some MPIs make way for others. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#include "loop.h"

static void all_reduce(const float* in, float* out, size_t count) {
    MPI_Allreduce(in, out, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void all_gather(const float* in, float* out, size_t count) {
    MPI_Allgather(in, (int)count, MPI_FLOAT, out, (int)count, MPI_FLOAT, MPI_COMM_WORLD);
}

static void reduce_scatter(const float* in, float* out, size_t count) {
    MPI_Reduce_scatter_block(in, out, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void broadcast(const float* in, float* out, size_t count) {
    (void)in; /* is out */
    MPI_Bcast(out, (int)count, MPI_FLOAT, 0, MPI_COMM_WORLD);
}

static void all_to_all(const float* in, float* out, size_t count) {
    MPI_Alltoall(in, (int)count, MPI_FLOAT, out, (int)count, MPI_FLOAT, MPI_COMM_WORLD);
}

static const struct call calls[] = {{"all_reduce", all_reduce},         {"all_gather", all_gather},
                                    {"reduce_scatter", reduce_scatter}, {"broadcast", broadcast},
                                    {"all_to_all", all_to_all},         {NULL, NULL}};

static double largest(double mine) {
    double all;
    MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return all;
}

static int local_rank(void) {
    const char* names[] = {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PMI_RANK"};
    for (int i = 0; i < 3; ++i)
        if (getenv(names[i])) return atoi(getenv(names[i]));
    return 0;
}

int main(int argc, char** argv) {
    struct library mpi = {0, 1, calls, largest, NULL};
    struct effort effort;
    int provided;
    if (argc != 5) {
        fprintf(stderr, "usage: peer_mpi COLLECTIVE SIZES SECONDS BATCHES\n");
        return 2;
    }
    pin_to_core(local_rank());
    MPI_Init_thread(&argc, &argv, getenv("COMPARE_THREADS") ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &mpi.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &mpi.ranks);
    effort = effort_of(argv[3], argv[4]);
    time_sizes(&mpi, argv[1], argv[2], &effort);
    MPI_Finalize();
    return 0;
}
