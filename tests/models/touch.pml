/*
 * Ranks copy to and from each other's memory, and give up at any moment. Models, by their names:
 *   step()    class Touching of src/transport/arena.hpp; HostChannel::touch(), end_step() and the handler in progress()
 *             of src/kernels/host/channel.cpp; Windows::copy_piece() of src/comm/windows.cpp
 *   give_up() Faults::keep(), fail() and until_untouched() of src/comm/faults.cpp
 *   close()   Windows::close() and open_part() of src/comm/windows.cpp, Faults::close_parts()
 * One rank is killed, or stopped and goes on later or never, at any point.
 * Holds: nobody touches a rank's memory after the rank has given it back to its user. Waiting for peers ends; only a
 * peer that is stopped is given up on, and then the memory is not given back.
 *
 * Broken: NO_FENCE_TOUCH  no fence between `touching` and the look at `closed` and the gate
 *         NO_FENCE_CLOSE  no fence between closing and the look at `touching`
 *         NO_CHECK        `closed` is not looked at
 *         CHECK_FIRST     `closed` and the gate are looked at before `touching` is set
 *         NO_WAIT         memory is given back at once
 *         FAIL_INSIDE     a rank gives up before its own step has ended
 *         DEAD_AWAITED    the dead are waited for
 *         KEY_IGNORED     a window takes any gate that is open for its own
 *         RELAXED         (with -DWEAK) stores do not wait for those before them
 */
#ifndef RANKS
#define RANKS 2
#endif
#ifndef STEPS
#define STEPS 1
#endif

#define THREADS RANKS
#define WAITING 3
#define TOUCHING(r) (r)
#define CLOSED(r) (RANKS + (r))
#define GATE(r) (2 * RANKS + (r)) /* 0: closed; else the key of the window that it is open for */
#define BUFFER(r) (3 * RANKS + (r))
#define PLACES (4 * RANKS)
#define OLD 1 /* keys */
#define NEW 2

bit given_back[RANKS]; /* the buffer BUFFER(r) is its user's again */
#define on_visible(p, v) assert(p < 3 * RANKS || !given_back[p - 3 * RANKS])
#include "memory.pml"

mtype = { lives, stopped, dead };
mtype fate[RANKS];
bit known_dead[RANKS];
bit ended[RANKS];

#ifdef NO_CHECK
#define is_closed(r) 0
#else
#define is_closed(r) (memory[CLOSED(r)] != 0)
#endif
#ifdef KEY_IGNORED
#define is_open(r) (memory[GATE(r)] != 0)
#else
#define is_open(r) (memory[GATE(r)] == OLD)
#endif

inline step(peer)
{
#ifdef CHECK_FIRST
	refused = is_closed(peer) || !is_open(peer);
#endif
	store(me, TOUCHING(me), 1);
#ifndef NO_FENCE_TOUCH
	full_fence(me);
#endif
#ifndef CHECK_FIRST
	refused = is_closed(peer);
	refused = refused || !is_open(peer);
#endif
	if
	:: refused
	:: else ->
		if
		:: store(me, BUFFER(peer), 1); store(me, BUFFER(peer), 2)
		:: assert(!given_back[peer]); assert(!given_back[peer]) /* two reads */
		fi
	fi;
#ifdef FAIL_INSIDE
	if
	:: refused -> give_up()
	:: else
	fi;
#endif
	store_release(me, TOUCHING(me), 0)
}

#ifdef DEAD_AWAITED
#define has_gone(r) false
#else
#define has_gone(r) known_dead[r]
#endif

inline until_untouched()
{
#ifndef NO_FENCE_CLOSE
	full_fence(me);
#endif
	other = 0;
	do
	:: other == RANKS -> break
	:: other < RANKS ->
		if
#ifdef NO_WAIT
		:: true
#else
		:: other == me
		:: other != me && memory[TOUCHING(other)] == 0
		:: other != me && has_gone(other)
		:: other != me && fate[other] == stopped && memory[TOUCHING(other)] != 0 -> doubt = 1 /* longest_wait has passed */
#endif
		fi;
		other++
	od;
	other = 0
}

inline give_up()
{
	store_release(me, CLOSED(me), 1);
	until_untouched();
	given_back[me] = !doubt;
	goto out
}

/* One window is closed; the gate serves for another one, whose memory nobody knows yet. */
inline close()
{
	store_release(me, GATE(me), 0);
	until_untouched();
	given_back[me] = !doubt;
	store_release(me, GATE(me), NEW)
}

proctype Rank(byte me) provided (fate[me] == lives)
{
	byte steps, other, peer;
	bit refused, doubt, closed;
	do
	:: steps < STEPS ->
		steps++;
#if RANKS == 2
		peer = 1 - me;
#else
		atomic { if :: me != 0 -> peer = 0 :: me != 1 -> peer = 1 :: me != 2 -> peer = 2 fi };
#endif
		step(peer);
		peer = 0;
		if
		:: refused -> give_up()
		:: else
		fi
	:: !closed -> closed = 1; close()
	:: true -> give_up()
	od;
out:	ended[me] = 1
}

/* Stops one, for a while or for ever, or kills it. The end of a process is heard of when its cores have left it. */
proctype Fate()
{
	byte r;
	select(r : 0 .. RANKS - 1);
	if
	:: fate[r] = stopped; fate[r] = lives
	:: fate[r] = stopped
	:: fate[r] = dead;
	   full_fence(r);
	   known_dead[r] = 1
	:: skip
	fi
}

/* When nothing moves any more. */
proctype Watch()
{
	byte r;
	timeout;
	do
	:: r < RANKS -> assert(ended[r] || fate[r] != lives); r++
	:: else -> break
	od
}

init {
	byte i;
	atomic {
		do
		:: i < RANKS ->
			fate[i] = lives;
			memory[GATE(i)] = OLD;
			run Memory(i);
			run Rank(i);
			i++
		:: else -> break
		od;
		run Fate();
		run Watch()
	}
}
