/* unloaded LIBRARY PREFIX: loads the library with dlopen, as plugins and interpreters do, uses it from two threads and
 * gives it back while these still live; again and again. The last time its communicators are not destroyed, and a
 * thread calls exit(). Exit code 0, or the line that found something wrong. */
#define _POSIX_C_SOURCE 200809L
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { ranks = 2, times = 10, int32 = 2, sum = 0 };

#define EXPECT(condition)                                           \
    do {                                                            \
        if (!(condition)) {                                         \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition); \
            _Exit(1);                                               \
        }                                                           \
    } while (0)

/* Tutti's and NCCL's functions alike. */
typedef struct {
    char bytes[128];
} Id;
static int (*get_unique_id)(Id*);
static int (*init_rank)(void**, int, Id, int);
static int (*all_reduce)(const void*, void*, size_t, int, int, void*, void*);
static int (*destroy)(void*);

static Id id;
static int leave = 0; /* 1: without destroy */
static pthread_barrier_t used, given_back;

static void* rank_main(void* number) {
    void* comm = NULL;
    int one = 1;
    EXPECT(init_rank(NULL, ranks, id, 0) != 0); /* this thread has an error's text */
    EXPECT(init_rank(&comm, ranks, id, *(int*)number) == 0);
    EXPECT(all_reduce(&one, &one, 1, int32, sum, comm, NULL) == 0 && one == ranks);
    EXPECT(leave || destroy(comm) == 0);
    pthread_barrier_wait(&used);
    pthread_barrier_wait(&given_back);
    return NULL;
}

static void* find(void* library, const char* prefix, const char* name) {
    char whole[100];
    void* found;
    snprintf(whole, sizeof whole, "%s%s", prefix, name);
    found = dlsym(library, whole);
    EXPECT(found != NULL);
    return found;
}

static void use(const char* file, const char* prefix) {
    pthread_t threads[ranks];
    int numbers[ranks] = {0, 1}, r;
    void* const library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    EXPECT(library != NULL);
    *(void**)&get_unique_id = find(library, prefix, "GetUniqueId");
    *(void**)&init_rank = find(library, prefix, "CommInitRank");
    *(void**)&all_reduce = find(library, prefix, "AllReduce");
    *(void**)&destroy = find(library, prefix, "CommDestroy");
    EXPECT(get_unique_id(&id) == 0);
    for (r = 0; r < ranks; ++r) EXPECT(pthread_create(&threads[r], NULL, rank_main, &numbers[r]) == 0);
    pthread_barrier_wait(&used);
    EXPECT(dlclose(library) == 0);
    pthread_barrier_wait(&given_back);
    for (r = 0; r < ranks; ++r) EXPECT(pthread_join(threads[r], NULL) == 0);
}

static void* end(void* nothing) {
    exit(0);
    return nothing;
}

int main(int argc, char** argv) {
    pthread_t ender;
    int i;
    EXPECT(argc == 3);
    EXPECT(pthread_barrier_init(&used, NULL, ranks + 1) == 0 &&
           pthread_barrier_init(&given_back, NULL, ranks + 1) == 0);
    for (i = 0; i < times; ++i) use(argv[1], argv[2]);
    leave = 1;
    use(argv[1], argv[2]);
    EXPECT(pthread_create(&ender, NULL, end, NULL) == 0);
    pthread_join(ender, NULL);
    return 1;
}
