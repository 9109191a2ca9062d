/*
 * One channel of a link: messages from one writer to one reader, without end. Models, by their names:
 *   Writer   class Sender in src/transport/fifo.hpp: ready(), posted_receive(), commit(), settled(); what
 *            HostChannel::store(), slot_or_elsewhere() and commit() of src/kernels/host/channel.cpp do with it
 *   Reader   class Receiver: ready(), post(), release(); HostChannel::begin_tile(), load(), source_elsewhere()
 * A message is inlined, in a slot, by reference, or has landed, as chance will have it; a large one has length 1 or 2.
 * What the reader waits for is cut into tiles of TILE messages, what the writer sends into calls of at most CALL, after
 * which it gives the memory that it has passed by reference back to its user. Numbers of messages wrap at WRAP.
 * `count` is what the model knows besides: the number of a message, which wraps at twice that.
 * Holds: every message comes once, in order, and its payload is whole from the moment that the reader sees it until it
 * has given the credit. A posted receive is only taken for the message that it was posted for, and only with its
 * length. The writer's user gets his memory back when it is no longer read. Nobody waits for ever.
 *
 * Broken: CREDIT_EARLY      the credit is given before the payload was read
 *         CREDIT_KEPT       a credit is not given
 *         SLOT_UNCHECKED    a message in a slot waits for a cell only
 *         TURN_EARLY        the turn is stored before the payload
 *         TURN_ANY          the reader takes any turn for a new message
 *         SETTLED_UNASKED   a call ends while its references are being read
 *         LENGTH_UNCHECKED  a posted receive is taken for a message of another length
 *         LANDING_ANY       a posted receive is taken whatever message it was posted for
 *         LANDING_KEPT      a posted receive is not taken back when its message has come: it is taken again WRAP
 *                           messages later
 *         RELAXED           (with -DWEAK) stores do not wait for those before them
 */
#ifndef DEPTH
#define DEPTH 2 /* fifo_depth */
#endif
#ifndef SLOTS
#define SLOTS 1 /* slot_depth */
#endif
#ifndef WRAP
#define WRAP 8 /* 2^32 */
#endif
#ifndef CALL
#define CALL 2
#endif
#ifndef TILE
#define TILE 2 /* at most DEPTH */
#endif

#define WRITER 0
#define READER 1
#define THREADS 2
#define WAITING 3
#define LAPS (2 * WRAP)

/* Places, and what is there */
#define TURN(n) ((n) % DEPTH)                            /* Cell::turn */
#define CELL(n) (DEPTH + (n) % DEPTH)                    /* the rest of a cell: kind * LAPS + count */
#define SLOT(n) (2 * DEPTH + (n) % SLOTS)                /* count */
#define MINE(n) (2 * DEPTH + SLOTS + (n))                /* the writer's memory, by place in the call: count */
#define POSTED(n) (2 * DEPTH + SLOTS + CALL + (n) % DEPTH) /* PostedReceive::turn */
#define LENGTH(n) (3 * DEPTH + SLOTS + CALL + (n) % DEPTH) /* PostedReceive::bytes; PostedReceive::where is HOME(n) */
#define HOME(n) (4 * DEPTH + SLOTS + CALL + (n) % DEPTH) /* the reader's memory: length * LAPS + count */
#define RELEASED (5 * DEPTH + SLOTS + CALL)
#define PLACES (RELEASED + 1)
#define GARBAGE 255

#define INLINED 0
#define IN_SLOT 1
#define REFERENCE 2
#define LANDED 3

/* Of a large message: what the reader expects is as long as its number says. */
#define expected(n) (1 + (n) % 2)

/* What each posted receive is posted for, as long as it is: count + 1 */
byte wanted[DEPTH];
#define is_home(p) ((p) >= HOME(0) && (p) < RELEASED)
#define is_wanted(p, v) (wanted[p - HOME(0)] == (v) % LAPS + 1 && expected((v) % LAPS) == (v) / LAPS)
#define on_visible(p, v) \
	if \
	:: is_home(p) -> assert(is_wanted(p, v)) \
	:: else \
	fi
#include "memory.pml"

#define sum(a, b) (((a) + (b)) % WRAP)
#define minus(a, b) (((a) + WRAP - (b)) % WRAP)
#define later(a, b) (minus(a, b) != 0 && minus(a, b) < WRAP / 2)

byte place_of_reference[DEPTH]; /* Cell::reference */

/* ready() */
inline await_room(depth)
{
	if
	:: minus(next, released) < depth
	:: else ->
		atomic { minus(next, memory[RELEASED]) < depth -> released = memory[RELEASED] }
	fi
}

inline commit(kind)
{
	atomic {
#ifdef TURN_EARLY
		store_release(WRITER, TURN(next), sum(next, 1));
		store(WRITER, CELL(next), kind * LAPS + count);
#else
		store(WRITER, CELL(next), kind * LAPS + count);
		store_release(WRITER, TURN(next), sum(next, 1));
#endif
		next = sum(next, 1);
		count = (count + 1) % LAPS
	}
}

#define length (is_other -> 3 - expected(count) : expected(count))

#ifdef LANDING_ANY
#define is_posted true
#else
#define is_posted (memory[POSTED(next)] == sum(next, 1))
#endif
#ifdef LENGTH_UNCHECKED
#define fits true
#else
#define fits (memory[LENGTH(next)] == length)
#endif

inline send_large()
{
#ifdef SLOT_UNCHECKED
	await_room(DEPTH);
#else
	await_room(SLOTS);
#endif
	if
	:: is_other = 0
	:: is_other = 1 /* it calls something else than the reader */
	fi;
	if
	:: is_posted && fits ->
		store(WRITER, HOME(next), length * LAPS + count);
		is_other = 0;
		commit(LANDED)
	:: else ->
		is_other = 0;
		if
		:: store(WRITER, SLOT(next), count);
		   commit(IN_SLOT)
		:: place_of_reference[next % DEPTH] = sent;
		   store(WRITER, MINE(sent), count);
		   refers = 1;
		   last_reference = sum(next, 1);
		   commit(REFERENCE)
		fi
	fi
}

proctype Writer()
{
	byte next, count, released, last_reference, sent;
	bit refers, is_other;
	do
	:: sent < CALL ->
		if
		:: true -> await_room(DEPTH); commit(INLINED)
		:: true -> send_large()
		fi;
		sent++
	:: sent > 0 ->
		/* settled() */
#ifndef SETTLED_UNASKED
		if
		:: refers && later(last_reference, released) ->
			atomic { !later(last_reference, memory[RELEASED]) -> released = memory[RELEASED] }
		:: else
		fi;
#endif
		/* the call has ended: its user does as he likes with what he gave */
		if
		:: refers ->
			do
			:: sent > 0 -> sent--; store(WRITER, MINE(sent), GARBAGE)
			:: else -> break
			od
		:: else
		fi;
		refers = 0;
		last_reference = 0;
		sent = 0
	od
}

/* post(), for messages of this tile, as their steps would have it */
inline post_receives()
{
	do
	:: ahead == TILE -> break
	:: ahead < TILE -> ahead++
	:: ahead < TILE ->
		atomic {
			wanted[(next + ahead) % DEPTH] = (count + ahead) % LAPS + 1;
			store(READER, LENGTH(next + ahead), expected(count + ahead));
			store_release(READER, POSTED(next + ahead), sum(next, ahead + 1));
			ahead++
		}
	od;
	ahead = 0
}

/* What nobody may look at any more has no value, so that there are fewer states. */
inline forget()
{
	wanted[next % DEPTH] = 0;
	place_of_reference[next % DEPTH] = 0;
	memory[CELL(next)] = GARBAGE;
	if
	:: kind == IN_SLOT -> memory[SLOT(next)] = GARBAGE
	:: kind == LANDED -> memory[HOME(next)] = GARBAGE
	:: kind == REFERENCE || kind == INLINED
	fi
}

/* release() */
inline give_back()
{
	forget();
	if
#ifdef CREDIT_KEPT
	:: skip
#endif
	:: true ->
#ifndef LANDING_KEPT
		if
		:: memory[POSTED(next)] != next -> store(READER, POSTED(next), next) /* what no message here has */
		:: else
		fi;
#endif
		store_release(READER, RELEASED, sum(next, 1))
	fi
}

/* What lies where the message is said to be. */
inline look()
{
	if
	:: kind == INLINED -> assert(memory[CELL(next)] == count)
	:: kind == IN_SLOT -> assert(memory[SLOT(next)] == count)
	:: kind == REFERENCE -> assert(memory[MINE(place_of_reference[next % DEPTH])] == count)
	:: kind == LANDED -> assert(memory[HOME(next)] % LAPS == count && wanted[next % DEPTH] == count + 1)
	fi
}

#ifdef TURN_ANY
#define is_ready (memory[TURN(next)] != 0)
#else
#define is_ready (memory[TURN(next)] == sum(next, 1))
#endif

proctype Reader()
{
	byte next, count, kind, step, ahead;
	do
	:: true ->
		post_receives();
		step = TILE;
		do
		:: step == 0 -> break
		:: step > 0 ->
			atomic {
				is_ready ->
				kind = memory[CELL(next)] / LAPS;
				assert(memory[CELL(next)] % LAPS == count);
				look() /* it begins to read, */
			};
			atomic {
#ifdef CREDIT_EARLY
				give_back()
			};
			atomic {
				look();
#else
				look(); /* and ends */
				give_back();
#endif
				step--;
				kind = 0;
				next = sum(next, 1);
				count = (count + 1) % LAPS
			}
		od
	od
}

init {
	byte i;
	atomic {
		do
		:: i < PLACES && i >= CELL(0) && !(i >= POSTED(0) && i < HOME(0)) && i != RELEASED -> memory[i] = GARBAGE; i++
		:: i < PLACES && (i < CELL(0) || (i >= POSTED(0) && i < HOME(0)) || i == RELEASED) -> i++
		:: i == PLACES -> break
		od;
		run Memory(WRITER);
		run Memory(READER);
		run Writer();
		run Reader()
	}
}
