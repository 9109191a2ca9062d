/* Small RDMA writes between two processes that do nothing else: the floor of messages by verbs. rdma DEVICE GID ROUNDS
 * forks, and prints a JSON line of microseconds. Of each way to notice a message (looking at the memory that it is
 * written to, as ib_write_lat does, or at the completion that an immediate brings) half of a round trip, and the
 * exchange, where both write at once, which is what an all-reduce of two ranks does; of 8 bytes and of 64. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "loop.h"

enum { depth = 256, stride = 64, slots = 16 };

struct end { /* what one end tells the other */
    uint32_t pair, key;
    uint64_t memory;
};

static struct ibv_cq* completions;
static struct ibv_qp* pair;
static unsigned char inbox[slots * stride] __attribute__((aligned(4096)));
static struct end peer;
static uint32_t sent, received, unsignalled, unposted;
static int in, out; /* pipes from and to the other end */

static void die(const char* what) {
    perror(what);
    exit(1);
}

static struct ibv_context* opened(const char* name) {
    struct ibv_device** list = ibv_get_device_list(NULL);
    for (; list && *list; ++list)
        if (strcmp(ibv_get_device_name(*list), name) == 0) return ibv_open_device(*list);
    fprintf(stderr, "no adapter %s\n", name);
    exit(1);
}

static void post_receives(int count) {
    struct ibv_recv_wr request = {0}, *bad;
    while (count-- > 0)
        if (ibv_post_recv(pair, &request, &bad) != 0) die("ibv_post_recv");
}

/* Until the other end is here, too. */
static void meet(const void* mine, void* theirs, size_t bytes) {
    if (write(out, mine, bytes) != (ssize_t)bytes || read(in, theirs, bytes) != (ssize_t)bytes) die("the pipe");
}

static void connect_pair(const char* device, int gid_index) {
    struct ibv_context* context = opened(device);
    struct ibv_pd* domain = ibv_alloc_pd(context);
    struct ibv_mr* region = ibv_reg_mr(domain, inbox, sizeof inbox, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    struct ibv_qp_init_attr wanted = {.qp_type = IBV_QPT_RC, .cap = {depth, depth, 1, 1, stride}};
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
    struct end mine;
    completions = ibv_create_cq(context, 2 * depth, NULL, NULL, 0);
    wanted.send_cq = wanted.recv_cq = completions;
    pair = ibv_create_qp(domain, &wanted);
    if (!region || !pair) die("ibv_create_qp");
    if (ibv_modify_qp(pair, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) != 0)
        die("ibv_modify_qp");
    post_receives(depth);
    mine = (struct end){pair->qp_num, region->rkey, (uintptr_t)inbox};
    meet(&mine, &peer, sizeof mine);
    memset(&a, 0, sizeof a);
    a.qp_state = IBV_QPS_RTR;
    a.path_mtu = IBV_MTU_1024;
    a.dest_qp_num = peer.pair;
    a.max_dest_rd_atomic = 1;
    a.min_rnr_timer = 12;
    a.ah_attr.port_num = 1;
    a.ah_attr.is_global = 1;
    a.ah_attr.grh.hop_limit = 1;
    a.ah_attr.grh.sgid_index = (uint8_t)gid_index;
    if (ibv_query_gid(context, 1, gid_index, &a.ah_attr.grh.dgid) != 0) die("ibv_query_gid");
    if (ibv_modify_qp(pair, &a,
                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                          IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) != 0)
        die("ibv_modify_qp");
    memset(&a, 0, sizeof a);
    a.qp_state = IBV_QPS_RTS;
    a.timeout = 17;
    a.retry_cnt = a.rnr_retry = 6;
    a.max_rd_atomic = 1;
    if (ibv_modify_qp(pair, &a,
                      IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                          IBV_QP_MAX_QP_RD_ATOMIC) != 0)
        die("ibv_modify_qp");
}

/* Whether an immediate has come; what was sent is only counted. */
static int polled(void) {
    struct ibv_wc done;
    const int count = ibv_poll_cq(completions, 1, &done);
    if (count < 0 || (count > 0 && done.status != IBV_WC_SUCCESS)) die("a completion");
    return count > 0 && (done.opcode & IBV_WC_RECV);
}

/* The last byte of each message is its number. */
static void put(int bytes, int immediate) {
    unsigned char ball[stride] = {0};
    struct ibv_sge piece = {(uintptr_t)ball, (uint32_t)bytes, 0};
    struct ibv_send_wr request = {.sg_list = &piece, .num_sge = 1}, *bad;
    ball[bytes - 1] = (unsigned char)(sent / slots + 1);
    request.opcode = immediate ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
    request.send_flags = IBV_SEND_INLINE;
    request.wr.rdma.remote_addr = peer.memory + sent % slots * stride;
    request.wr.rdma.rkey = peer.key;
    if (++unsignalled == depth / 4) {
        request.send_flags |= IBV_SEND_SIGNALED;
        unsignalled = 0;
    }
    ++sent;
    if (ibv_post_send(pair, &request, &bad) != 0) die("ibv_post_send");
    if (!immediate && unsignalled == 1 && sent > depth / 4)
        while (polled()) {
        }
}

static void get(int bytes, int immediate) {
    const volatile unsigned char* last = inbox + received % slots * stride + bytes - 1;
    if (immediate) {
        while (!polled()) {
        }
        if (++unposted == depth / 4) {
            post_receives(depth / 4);
            unposted = 0;
        }
    } else {
        while (*last != (unsigned char)(received / slots + 1)) {
        }
    }
    ++received;
}

struct way {
    int rank, bytes, immediate;
};

static void round_trip(void* argument) {
    const struct way* w = argument;
    if (w->rank == 0) put(w->bytes, w->immediate);
    get(w->bytes, w->immediate);
    if (w->rank == 1) put(w->bytes, w->immediate);
}

static void exchange(void* argument) {
    const struct way* w = argument;
    put(w->bytes, w->immediate);
    get(w->bytes, w->immediate);
}

/* One JSON line. */
static void time_messages(int rank, int bytes, int immediate, long rounds) {
    struct way way = {rank, bytes, immediate};
    char any;
    double half, both;
    memset(inbox, 0, sizeof inbox);
    sent = received = 0;
    meet("", &any, 1);
    half = median_us(round_trip, &way, rounds) / 2;
    both = median_us(exchange, &way, rounds);
    if (rank == 0)
        printf("{\"by\": \"%s\", \"bytes\": %d, \"half round trip\": %.2f, \"exchange\": %.2f}\n",
               immediate ? "completion" : "memory", bytes, half, both);
    meet("", &any, 1);
}

int main(int argc, char** argv) {
    int there[2], back[2], rank, status = 0;
    if (argc != 4) {
        fprintf(stderr, "usage: rdma DEVICE GID ROUNDS\n");
        return 2;
    }
    if (pipe(there) != 0 || pipe(back) != 0) die("pipe");
    rank = fork() == 0;
    in = rank ? there[0] : back[0];
    out = rank ? back[1] : there[1];
    pin_to_core(rank);
    connect_pair(argv[1], atoi(argv[2]));
    for (int immediate = 0; immediate < 2; ++immediate)
        for (int bytes = 8; bytes <= stride; bytes += stride - 8) time_messages(rank, bytes, immediate, atol(argv[3]));
    fflush(stdout);
    return rank == 0 && (wait(&status) < 0 || status != 0);
}
