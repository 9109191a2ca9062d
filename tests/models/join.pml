/*
 * Ranks meet and join, and die at any point before, meanwhile and afterwards, in the midst of what they send. Models,
 * by their names:
 *   Rendezvous   class Directory in src/bootstrap/directory.cpp, which lives in the process of rank 0
 *   Rank      class Joining: call_parent(), heard(), finish(), time_up() of src/bootstrap/joining.cpp, and class
 *             Membership: received(), on_attach(), send_news(), closed() of membership.cpp, hear(), mark_left(),
 *             give_up() of liveness.cpp, with note_death() of news.cpp
 *   kill()    a process ends: what it had not sent is lost, what it had sent arrives, then each connection ends
 * Rank r's parent in the tree is (r - 1) / WIDTH. A time-out comes only when nothing else can happen. Sets of ranks are
 * masks.
 * Holds: who lives has joined or has an error. An error names a rank that has died, or the rendezvous if that has.
 * Nobody waits for the time-out unless the rendezvous has died, or a rank before it came there. Who has joined hears
 * of a death if there is one.
 *
 * Broken: NEWS_KEPT     a rank keeps to itself what it hears of
 *         LEFT_UNSAID   a rank that gives up does not say that it leaves
 *         END_IGNORED   the end of a connection is taken for nothing
 *         RECORD_LOST   a line of the table is not passed on
 *         ROOT_LEAVES   rank 0 leaves the rendezvous before all have joined, as the others do
 *         PARENT_LOST   the rendezvous does not tell a rank of a parent that comes later than it
 */
#ifndef RANKS
#define RANKS 3
#endif
#ifndef WIDTH
#define WIDTH 1
#endif
#ifndef DEATHS
#define DEATHS 1
#endif

#define ROOM 8
#define NOBODY 255 /* the rendezvous */
#define everybody (bit_of(RANKS) - 1)
#define bit_of(r) (1 << (r))
#define has(set, r) (((set) >> (r)) & 1)
#define parent_of(r) (((r) - 1) / WIDTH)
#define is_child(r, p) ((r) != 0 && parent_of(r) == (p))

mtype = { welcome, register, parent, settled, attach, record, failure, left, ask, end };

/* what, whom or which it is of, whether that one has died */
chan to_meeting[RANKS] = [ROOM] of { mtype, byte, bit };
chan from_meeting[RANKS] = [ROOM] of { mtype, byte, bit };
chan up[RANKS] = [ROOM] of { mtype, byte, bit };   /* from a rank to its parent */
chan down[RANKS] = [ROOM] of { mtype, byte, bit }; /* and back */

mtype = { starting, joining, joined, failed };
mtype state[RANKS];
byte dead;           /* as a god sees them */
byte deaths;         /* that have happened, or are about to */
byte registered;     /* who has come to the rendezvous */
byte listening;      /* who takes connections */
byte visits;         /* connections to the rendezvous, as the visitor sees them, */
byte climbs;         /* and those to the parent, */
byte children;       /* and as the parent does, of those that have said who they are */
byte blamed[RANKS];  /* first fault */
bit knows[RANKS];    /* of a fault */

#define lives(r) (!has(dead, r))
#define push(pipe, what, whom, died) atomic { assert(nfull(pipe)); pipe!what, whom, died }

/* ------------------------------------------------------------------ the rendezvous */

inline on_register()
{
	registered = registered | bit_of(r);
	visitors = visitors | bit_of(r);
	push(from_meeting[r], welcome, 0, 0);
	if
	:: has_failed -> push(from_meeting[r], failure, blames, blames_died)
	:: else ->
		seats = seats | bit_of(r);
		if
		:: r != 0 && has(seats, parent_of(r)) -> push(from_meeting[r], parent, parent_of(r), 0)
		:: else
		fi;
#ifndef PARENT_LOST
		whom = 1;
		do
		:: whom == RANKS -> break
		:: whom < RANKS ->
			if
			:: parent_of(whom) == r && has(seats, whom) && has(visitors, whom) && !has(settlers, whom) ->
				push(from_meeting[whom], parent, r, 0)
			:: else
			fi;
			whom++
		od
#endif
	fi
}

inline fail_all(rank, has_died)
{
	if
	:: has_failed || is_complete
	:: else ->
		has_failed = 1;
		blames = rank;
		blames_died = has_died;
		whom = 0;
		do
		:: whom == RANKS -> break
		:: whom < RANKS ->
			if
			:: has(visitors, whom) -> push(from_meeting[whom], failure, blames, blames_died)
			:: else
			fi;
			whom++
		od
	fi
}

/* The first of those that have not come, or else have not settled. */
inline on_ask()
{
	if
	:: has_failed || is_complete
	:: else ->
		r = 0;
		do
		:: r < RANKS && has(seats, r) -> r++
		:: else -> break
		od;
		if
		:: r == RANKS ->
			r = 1;
			do
			:: r < RANKS && has(settlers, r) -> r++
			:: else -> break
			od
		:: else
		fi;
		if
		:: r == RANKS -> fail_all(NOBODY, 0)
		:: else -> fail_all(r, 0)
		fi
	fi
}

proctype Rendezvous()
{
	byte seats, visitors, settlers, r, whom, blames;
	bit died, has_failed, is_complete, blames_died;
	mtype what;
end_meeting:
	do
	:: atomic {
		if
		:: lives(0) && nempty(to_meeting[0]) -> r = 0
		:: lives(0) && nempty(to_meeting[1]) -> r = 1
		:: lives(0) && nempty(to_meeting[2]) -> r = 2
#if RANKS > 3
		:: lives(0) && nempty(to_meeting[3]) -> r = 3
#endif
		fi;
		to_meeting[r]?what, whom, died;
		if
		:: what == register -> on_register()
		:: what == settled ->
			settlers = settlers | bit_of(r);
			is_complete = is_complete || (r == 0 && !has_failed)
		:: what == failure -> fail_all(whom, died)
		:: what == ask -> on_ask()
		:: what == end ->
			visitors = visitors & ~bit_of(r);
			if
			:: has(seats, r) && !has(settlers, r) -> fail_all(r, 1)
			:: else
			fi
		:: else /* it takes no part in the rest */
		fi;
		what = 0;
		whom = 0;
		died = 0;
		r = 0
	   }
	od
}

/* ------------------------------------------------------------------ a rank */

/* One that dies in what it does next has still sent the first of its messages. */
#define ALL 255
#define say(pipe, what, whom, died) \
	if \
	:: can_say == 0 && what != end \
	:: can_say == ALL || what == end -> push(pipe, what, whom, died) \
	:: can_say != ALL && can_say != 0 && what != end -> can_say--; push(pipe, what, whom, died) \
	fi

#define tells_meeting(what, whom, died) \
	if \
	:: has(visits, me) -> say(to_meeting[me], what, whom, died) \
	:: else \
	fi
#define tells_parent(what, whom, died) \
	if \
	:: has(climbs, me) -> say(up[me], what, whom, died) \
	:: else \
	fi
#define tells_child(r, what, whom, died) \
	if \
	:: has(children, r) -> say(down[r], what, whom, died) \
	:: else \
	fi

/* All but the connection to where it came from: NOBODY if from none, RANKS if from the rendezvous. */
inline tell(source, what, whom, died)
{
	if
	:: source != RANKS -> tells_meeting(what, whom, died)
	:: else
	fi;
	tell_tree(source, what, whom, died)
}

inline tell_tree(source, what, whom, died)
{
	if
	:: me != 0 && source != parent_of(me) -> tells_parent(what, whom, died)
	:: else
	fi;
	c = 1;
	do
	:: c == RANKS -> break
	:: c < RANKS ->
		if
		:: is_child(c, me) && source != c -> tells_child(c, what, whom, died)
		:: else
		fi;
		c++
	od;
	c = 0
}

inline hear(source, culprit, by_death)
{
	first = !knows[me];
	fresh = by_death && state[me] == joined && !has(gone, culprit) && !has(known_dead, culprit);
	if
	:: fresh ->
		assert(has(dead, culprit));
		known_dead = known_dead | bit_of(culprit)
	:: else
	fi;
	if
	:: first ->
		knows[me] = 1;
		blamed[me] = culprit;
		assert((culprit == NOBODY && has(dead, 0)) || (culprit != NOBODY && has(dead, culprit)))
	:: else
	fi;
#ifndef NEWS_KEPT
	if
	:: first || fresh -> tell(source, failure, culprit, by_death)
	:: else
	fi;
#endif
	if
	:: first && state[me] == joining ->
		gone = gone | bit_of(me);
#ifndef LEFT_UNSAID
		tell(NOBODY, left, bit_of(me), 0);
#endif
		state[me] = failed;
		shut()
	:: else
	fi;
	first = 0;
	fresh = 0
}

inline shut()
{
	tell(NOBODY, end, 0, 0);
	listening = listening & ~bit_of(me);
	visits = visits & ~bit_of(me);
	climbs = climbs & ~bit_of(me);
	c = 1;
	do
	:: c == RANKS -> break
	:: c < RANKS ->
		if
		:: is_child(c, me) && has(climbs, c) && !has(children, c) -> say(down[c], end, 0, 0) /* not yet taken in */
		:: else
		fi;
		if
		:: is_child(c, me) -> children = children & ~bit_of(c)
		:: else
		fi;
		c++
	od;
	c = 0
}

inline on_records(source, lines)
{
	if
	:: state[me] == joining && (lines & ~known) != 0 ->
		whom = lines & ~known;
		known = known | whom;
#ifndef RECORD_LOST
		tell_tree(source, record, whom, 0);
#endif
		if
		:: known == everybody -> is_joined()
		:: else
		fi
	:: else
	fi
}

inline is_joined()
{
	state[me] = joined;
	leave_meeting()
}

inline leave_meeting()
{
	if
	:: has(visits, me) ->
		say(to_meeting[me], settled, 0, 0);
		say(to_meeting[me], end, 0, 0);
		visits = visits & ~bit_of(me)
	:: else
	fi
}

inline send_news(pipe)
{
	if
	:: gone != 0 -> say(pipe, left, gone, 0)
	:: else
	fi;
	if
	:: knows[me] -> say(pipe, failure, blamed[me], has(known_dead, blamed[me]))
	:: else
	fi
}

inline call_parent()
{
	climbs = climbs | bit_of(me);
	say(up[me], attach, me, 0);
	say(up[me], record, known, 0);
	send_news(up[me])
}

inline on_attach(child)
{
	children = children | bit_of(child);
	say(down[child], welcome, 0, 0);
#ifdef ROOT_LEAVES
	leave_meeting();
#endif
	if
	:: state[me] == joining -> say(down[child], record, known, 0)
	:: else
	fi;
	send_news(down[child])
}

/* From the tree; source: the neighbour. */
inline received(source)
{
	if
	:: what == record -> on_records(source, whom)
	:: what == failure -> hear(source, whom, died)
	:: what == left ->
		whom = whom & ~gone;
		gone = gone | whom;
		if
		:: whom != 0 -> tell_tree(source, left, whom, 0)
		:: else
		fi
	:: what == ask ->
		if
		:: welcomed -> say(up[me], ask, 0, 0)
		:: else -> tells_meeting(ask, 0, 0)
		fi
	:: what == end -> /* closed(), of one that was welcome */
#ifndef END_IGNORED
		if
		:: has(gone, source)
		:: else -> hear(NOBODY, source, 1)
		fi
#else
		skip
#endif
	fi
}

inline from_child(child)
{
	up[child]?what, whom, died;
	if
	:: what == attach && state[me] != failed -> on_attach(child)
	:: what != attach && has(children, child) ->
		if
		:: what == end -> children = children & ~bit_of(child)
		:: else
		fi;
		received(child)
	:: else
	fi
}

inline from_parent()
{
	down[me]?what, whom, died;
	if
	:: !has(climbs, me)
	:: has(climbs, me) && what == welcome ->
		welcomed = 1;
		leave_meeting()
	:: has(climbs, me) && what != welcome ->
		if
		:: what == end -> climbs = climbs & ~bit_of(me)
		:: else
		fi;
		if
		:: what == end && !welcomed /* it never took us in: retry */
		:: else -> received(parent_of(me))
		fi;
		if
		:: what == end -> welcomed = 0
		:: else
		fi
	fi
}

inline at_meeting()
{
	from_meeting[me]?what, whom, died;
	if
	:: !has(visits, me)
	:: has(visits, me) && what == welcome -> let_in = 1
	:: has(visits, me) && what == parent -> parent_known = 1
	:: has(visits, me) && what == failure -> hear(RANKS, whom, died)
	:: has(visits, me) && what == end ->
		visits = visits & ~bit_of(me);
		if
		:: state[me] == joining && let_in && !parent_known -> hear(NOBODY, NOBODY, 0)
		:: else
		fi
	fi
}

inline time_up()
{
	assert(has(dead, 0) || (dead & ~registered) != 0);
	if
	:: !asked && welcomed -> asked = 1; say(up[me], ask, 0, 0)
	:: !asked && !welcomed && has(visits, me) && let_in -> asked = 1; say(to_meeting[me], ask, 0, 0)
	:: else -> /* give_up() */
		if
		:: parent_known || me == 0 ->
			whom = 0;
			do
			:: has(known, whom) -> whom++
			:: else -> break
			od;
			hear(NOBODY, whom, 0)
		:: else -> hear(NOBODY, NOBODY, 0)
		fi
	fi
}

/* Its connections end. */
inline kill()
{
	dead = dead | bit_of(me);
	can_say = 0;
	if
	:: has(visits, me) && me != 0 -> push(to_meeting[me], end, 0, 0)
	:: else
	fi;
	if
	:: has(climbs, me) -> push(up[me], end, 0, 0)
	:: else
	fi;
	visits = visits & ~bit_of(me);
	climbs = climbs & ~bit_of(me);
	c = 1;
	do
	:: c == RANKS -> break
	:: c < RANKS ->
		if
		:: is_child(c, me) && has(climbs, c) -> push(down[c], end, 0, 0)
		:: else
		fi;
		if
		:: me == 0 && has(visits, c) -> push(from_meeting[c], end, 0, 0)
		:: else
		fi;
		c++
	od;
	c = 0;
	known = 0;
	gone = 0;
	known_dead = 0
}

proctype Rank(byte me)
{
	byte known = bit_of(me), gone, known_dead;
	bit let_in, parent_known, welcomed, asked;
	byte c, whom, can_say = ALL;
	bit died, first, fresh;
	mtype what;
end_rank:
	do
	:: atomic { deaths < DEATHS && lives(me) && can_say == ALL -> deaths++; can_say = 0; kill() }
	:: atomic { deaths < DEATHS && lives(me) && can_say == ALL -> deaths++; select(can_say : 0 .. 4) }
	:: atomic {
		if
		:: lives(me) && state[me] == starting && lives(0) && (me == 0 || state[0] != starting) ->
			state[me] = joining;
			listening = listening | bit_of(me);
			visits = visits | bit_of(me);
			say(to_meeting[me], register, 0, 0)
		:: lives(me) && state[me] == joining && parent_known && !has(climbs, me) &&
		   has(listening, parent_of(me)) && !has(dead, parent_of(me)) -> call_parent()
		:: lives(me) && nempty(from_meeting[me]) -> at_meeting()
		:: lives(me) && nempty(down[me]) -> from_parent()
		:: lives(me) && is_child(1, me) && nempty(up[1]) -> from_child(1)
		:: lives(me) && is_child(2, me) && nempty(up[2]) -> from_child(2)
#if RANKS > 3
		:: lives(me) && is_child(3, me) && nempty(up[3]) -> from_child(3)
#endif
		:: timeout && lives(me) && state[me] == starting -> /* it could not reach the rendezvous */
			state[me] = joining;
			hear(NOBODY, NOBODY, 0)
		:: timeout && lives(me) && state[me] == joining -> time_up()
		fi;
		what = 0;
		whom = 0;
		died = 0;
		if
		:: can_say != ALL && lives(me) -> kill()
		:: else
		fi
	   }
	od
}

/* When nothing moves any more. */
proctype Watch()
{
	byte r;
	timeout;
	atomic {
		do
		:: r < RANKS ->
			assert(!lives(r) || state[r] != joined || dead == 0 || knows[r]);
			r++
		:: else -> break
		od;
		r = 0
	}
}

init {
	byte i;
	atomic {
		do
		:: i < RANKS -> state[i] = starting; run Rank(i); i++
		:: else -> break
		od;
		run Rendezvous();
		run Watch()
	}
}
