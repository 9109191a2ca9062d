/* without-membarrier PROGRAM ARGUMENTS...: runs a program whose every membarrier() is refused, as by the seccomp
 * profiles of some containers. */
#define _GNU_SOURCE /* syscall */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int argc, char** argv) {
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {sizeof rules / sizeof *rules, rules};
    if (argc < 2) return fprintf(stderr, "usage: without-membarrier PROGRAM ARGUMENTS...\n"), 2;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        if (errno != EINVAL && errno != EACCES)
            return fprintf(stderr, "without-membarrier: prctl: %s\n", strerror(errno)), 1;
        printf("skipped: this kernel has no seccomp filters\n");
        return 77;
    }
    if (syscall(SYS_membarrier, 0, 0, 0) != -1 || errno != EPERM)
        return fprintf(stderr, "without-membarrier: it is not refused\n"), 1;
    execvp(argv[1], argv + 1);
    return fprintf(stderr, "without-membarrier: %s: %s\n", argv[1], strerror(errno)), 1;
}
