/*
 * A rank sleeps, its peers wake it. Models, by their names:
 *   Sleeper   sleep_on() in src/comm/driver.cpp, with fence_all_cores() and futex_wait() of src/base/os.cpp
 *   Waker    wake() in src/transport/fifo.hpp, after the store that the sleeper waits for
 * Holds: no wake-up is lost. Without a time-out nobody sleeps for ever (no invalid end state).
 *
 * Broken: NO_FENCE       the sleeper fences only its own core
 *         FENCE_EARLY    the fence comes before `sleeping`
 *         NO_LOOK        the sleeper does not look once more
 *         WORD_LATE      the sleeper reads the word after its last look
 *         NOT_SENT       a message is stored and no wake-up sent
 *         NO_WORD        the word is not counted up before the wake
 *         CLEAR_LATE     `sleeping` is cleared after the wake
 */
#ifndef WAKERS
#define WAKERS 2
#endif
#ifndef MESSAGES
#define MESSAGES 2 /* of each waker */
#endif

#define THREADS (WAKERS + 1)
#define WAITING 3
#define SLEEPING WAKERS /* places: a counter of messages for each waker, then WakeUp::sleeping, then WakeUp::word */
#define WORD (WAKERS + 1)
#define PLACES (WAKERS + 2)
#define on_visible(place, value) skip
#include "memory.pml"

bit asleep; /* in futex_wait */

/* futex_wake() */
inline wake() { asleep = 0 }

proctype Waker(byte me)
{
	byte sent;
	do
	:: sent < MESSAGES ->
		sent++;
		store_release(me, me, sent);
#ifdef NOT_SENT
		if
		:: skip
		:: goto next
		fi;
#endif
		if
		:: memory[SLEEPING] == 0
		:: else ->
#ifndef CLEAR_LATE
			store(me, SLEEPING, 0);
#endif
#ifndef NO_WORD
			atomic { full_fence(me) -> memory[WORD] = (memory[WORD] + 1) % 8 };
#else
			full_fence(me);
#endif
			wake();
#ifdef CLEAR_LATE
			store(me, SLEEPING, 0)
#endif
		fi;
next:		skip
	:: else -> break
	od
}

/* Takes all that has come. */
inline look()
{
	atomic {
		news = 0;
		r = 0;
		do
		:: r < WAKERS ->
			if
			:: memory[r] != got[r] -> taken = taken + memory[r] - got[r]; got[r] = memory[r]; news = 1
			:: else
			fi;
			r++
		:: else -> break
		od;
		r = 0
	}
}

/* Each thread passes a fence, one after the other. */
inline fence_all_cores()
{
	full_fence(WAKERS);
	do
	:: r < WAKERS -> full_fence(r); r++
	:: else -> break
	od;
	r = 0
}

#define has_all (taken == WAKERS * MESSAGES)

proctype Sleeper()
{
	byte got[WAKERS], taken, r, word;
	bit news;
	do
	:: has_all -> break
	:: else ->
		look();
		if
		:: news || has_all
		:: else ->
			word = memory[WORD];
#ifdef FENCE_EARLY
			fence_all_cores();
#endif
			store_release(WAKERS, SLEEPING, 1);
#ifdef NO_FENCE
			full_fence(WAKERS);
#else
#ifndef FENCE_EARLY
			fence_all_cores();
#endif
#endif
#ifndef NO_LOOK
			look();
#endif
#ifdef WORD_LATE
			word = memory[WORD];
#endif
			if
			:: news
			:: else ->
				/* futex_wait(): compared and gone to sleep in one step */
				full_fence(WAKERS);
				atomic {
					if
					:: memory[WORD] == word -> asleep = 1
					:: else
					fi
				};
				asleep == 0
			fi;
			store(WAKERS, SLEEPING, 0)
		fi
	od
}

init {
	byte i;
	atomic {
		do
		:: i < THREADS -> run Memory(i); i++
		:: else -> break
		od;
		i = 0;
		do
		:: i < WAKERS -> run Waker(i); i++
		:: else -> break
		od;
		run Sleeper()
	}
}
