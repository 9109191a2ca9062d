/*
 * Memory with store buffers. A store waits in its thread's buffer until drain() makes it visible; a load sees only what
 * is visible.
 *
 * As it is, a buffer drains in its order: the memory of x86 (TSO). With -DWEAK a store may overtake an earlier one to
 * another place, unless it is a release: then all stores of its thread before it are visible first.
 *
 * No thread loads what may still wait in its own buffer, so there is no forwarding. A buffer that is full makes its
 * thread wait.
 *
 * The including model defines THREADS, PLACES, WAITING (stores in a buffer, at most 4) and on_visible(place, value).
 */
typedef Stores {
	byte count;
	byte place[WAITING];
	byte value[WAITING];
	bit release[WAITING];
}
Stores stores[THREADS];
byte memory[PLACES];

inline put(t, p, v, r)
{
	atomic {
		stores[t].count < WAITING;
		stores[t].place[stores[t].count] = p;
		stores[t].value[stores[t].count] = v;
		stores[t].release[stores[t].count] = r;
		stores[t].count++
	}
}
#define store(t, p, v) put(t, p, v, 0)
#ifdef RELAXED
#define store_release(t, p, v) put(t, p, v, 0)
#else
#define store_release(t, p, v) put(t, p, v, 1)
#endif

/* std::atomic_thread_fence(seq_cst), and what a system call or an atomic read-modify-write does on the way. */
#define is_empty(t) (stores[t].count == 0)
#define full_fence(t) is_empty(t)

/* Whether store number i of t may become visible before the earlier ones. */
#define passes(t, i, k) (stores[t].place[i] != stores[t].place[k])
#define free_1(t) (stores[t].count > 1 && !stores[t].release[1] && passes(t, 1, 0))
#define free_2(t) (stores[t].count > 2 && !stores[t].release[2] && passes(t, 2, 0) && passes(t, 2, 1))
#define free_3(t) \
	(stores[t].count > 3 && !stores[t].release[3] && passes(t, 3, 0) && passes(t, 3, 1) && passes(t, 3, 2))

inline drain(t, i)
{
	k = i;
	memory[stores[t].place[k]] = stores[t].value[k];
	on_visible(stores[t].place[k], stores[t].value[k]);
	stores[t].count--;
	do
	:: k < stores[t].count ->
		stores[t].place[k] = stores[t].place[k + 1];
		stores[t].value[k] = stores[t].value[k + 1];
		stores[t].release[k] = stores[t].release[k + 1];
		k++
	:: else -> break
	od;
	stores[t].place[k] = 0;
	stores[t].value[k] = 0;
	stores[t].release[k] = 0;
	k = 0
}

proctype Memory(byte t)
{
	byte k;
end:	do
	:: atomic { stores[t].count > 0 -> drain(t, 0) }
#ifdef WEAK
	:: atomic { free_1(t) -> drain(t, 1) }
#if WAITING > 2
	:: atomic { free_2(t) -> drain(t, 2) }
#endif
#if WAITING > 3
	:: atomic { free_3(t) -> drain(t, 3) }
#endif
#endif
	od
}
