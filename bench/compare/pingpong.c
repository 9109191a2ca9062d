/* A plain non-blocking TCP connection between two hosts, as the floor for messages. pingpong ROUNDS SIZES SECONDS,
 * started by netns-run with two ranks: the round trip of 8 bytes, and exchanges of so many bytes, where both send at
 * once, which is what an all-reduce of two ranks does. Rank 0 prints JSON lines of microseconds. */
#define _GNU_SOURCE
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "loop.h"

static void die(const char* what) {
    perror(what);
    exit(1);
}

static struct addrinfo* meeting(void) {
    struct addrinfo hints = {0}, *found;
    char port[16];
    snprintf(port, sizeof port, "%d", atoi(getenv("MASTER_PORT")) + 1);
    hints.ai_socktype = SOCK_STREAM;
    if (getaddrinfo(getenv("MASTER_ADDR"), port, &hints, &found) != 0) die("getaddrinfo");
    return found;
}

static int connected(int rank) {
    const struct addrinfo* at = meeting();
    const int one = 1;
    int fd = -1;
    if (rank == 0) {
        const int door = socket(at->ai_family, SOCK_STREAM, 0);
        setsockopt(door, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        if (bind(door, at->ai_addr, at->ai_addrlen) != 0 || listen(door, 1) != 0) die("listen");
        fd = accept(door, NULL, NULL);
    }
    for (int attempt = 0; rank != 0 && attempt < 500; ++attempt) {
        fd = socket(at->ai_family, SOCK_STREAM, 0);
        if (connect(fd, at->ai_addr, at->ai_addrlen) == 0) break;
        close(fd);
        fd = -1;
        usleep(10000);
    }
    if (fd < 0) die("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

static void put(int fd) {
    const char ball[8] = {0};
    if (send(fd, ball, sizeof ball, MSG_DONTWAIT) != (ssize_t)sizeof ball) die("send");
}

static void get(int fd) {
    char ball[8];
    size_t have = 0;
    while (have < sizeof ball) {
        const ssize_t got = recv(fd, ball + have, sizeof ball - have, MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EAGAIN)) die("recv");
        if (got > 0) have += (size_t)got;
    }
}

static double ping_pong(int fd, int rank, long rounds) {
    const double begin = now_seconds();
    for (long i = 0; i < rounds; ++i) {
        if (rank == 0) put(fd);
        get(fd);
        if (rank == 1) put(fd);
    }
    return 1e6 * (now_seconds() - begin) / (double)rounds;
}

static void exchange_once(int fd, char* out, char* in, size_t bytes) {
    size_t sent = 0, got = 0;
    while (sent < bytes || got < bytes) {
        const ssize_t put = sent < bytes ? send(fd, out + sent, bytes - sent, MSG_DONTWAIT) : 0;
        const ssize_t had = got < bytes ? recv(fd, in + got, bytes - got, MSG_DONTWAIT) : 0;
        if (put < 0 && errno != EAGAIN) die("send");
        if ((had < 0 && errno != EAGAIN) || (had == 0 && got < bytes)) die("recv");
        if (put > 0) sent += (size_t)put;
        if (had > 0) got += (size_t)had;
    }
}

static double exchange(int fd, char* out, char* in, size_t bytes, long rounds) {
    const double begin = now_seconds();
    for (long i = 0; i < rounds; ++i) exchange_once(fd, out, in, bytes);
    return 1e6 * (now_seconds() - begin) / (double)rounds;
}

/* Both ranks make equally many rounds, for rank 0 tells how many. */
static void time_exchange(int fd, int rank, size_t bytes, double seconds) {
    enum { batches = 5 };
    char* const out = calloc(1, bytes);
    char* const in = calloc(1, bytes);
    long rounds[2] = {0, 0};
    double us[batches];
    if (!out || !in) die("calloc");
    memset(out, 1, bytes);
    memset(in, 1, bytes); /* their pages exist from now on */
    rounds[0] = (long)(1e6 * seconds / batches / exchange(fd, out, in, bytes, 3)) + 1;
    exchange_once(fd, (char*)&rounds[0], (char*)&rounds[1], sizeof rounds[0]);
    for (int batch = 0; batch < batches; ++batch) us[batch] = exchange(fd, out, in, bytes, rounds[rank == 0 ? 0 : 1]);
    if (rank == 0) {
        printf("{\"bytes\": %zu, \"us\": [", bytes);
        for (int batch = 0; batch < batches; ++batch) printf("%s%.4f", batch ? ", " : "", us[batch]);
        printf("]}\n");
    }
    free(out);
    free(in);
}

int main(int argc, char** argv) {
    const int rank = getenv("RANK") ? atoi(getenv("RANK")) : 0;
    const long rounds = argc > 1 ? strtol(argv[1], NULL, 10) : 0;
    double round_trip;
    if (argc != 4) {
        fprintf(stderr, "usage: netns-run --hosts 2 -- pingpong ROUNDS SIZES SECONDS\n");
        return 2;
    }
    pin_to_core(rank);
    const int fd = connected(rank);
    ping_pong(fd, rank, rounds / 10);
    round_trip = ping_pong(fd, rank, rounds);
    if (rank == 0) printf("{\"round_trip_us\": %.3f}\n", round_trip);
    for (char* size = strtok(argv[2], ","); size; size = strtok(NULL, ","))
        time_exchange(fd, rank, (size_t)strtoull(size, NULL, 10), strtod(argv[3], NULL));
    return 0;
}
