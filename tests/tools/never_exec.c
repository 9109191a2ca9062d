// Preloaded into tutti-run, this keeps its ranks from ever becoming their command, as a file system does that answers
// no more.
//
//     LD_PRELOAD=libnever_exec.so tutti-run ...
#include <unistd.h>

int execvp(const char* file, char* const arguments[]) {
    (void)file, (void)arguments;
    for (;;) pause();
}
