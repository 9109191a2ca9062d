/* MPI_Allreduce in the loop. peer_mpi SIZES SECONDS BATCHES
 * COMPARE_THREADS in the environment: as a process of several threads, which some MPIs make way for others. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#include "loop.h"

static void sum(const float* in, float* out, size_t count) {
    MPI_Allreduce(in, out, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

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
    struct library mpi = {0, 1, sum, largest, NULL};
    struct effort effort;
    int provided;
    if (argc != 4) {
        fprintf(stderr, "usage: peer_mpi SIZES SECONDS BATCHES\n");
        return 2;
    }
    pin_to_core(local_rank());
    MPI_Init_thread(&argc, &argv, getenv("COMPARE_THREADS") ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &mpi.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &mpi.ranks);
    effort = effort_of(argv[2], argv[3]);
    time_sizes(&mpi, argv[1], &effort);
    MPI_Finalize();
    return 0;
}
