/*
 * Ranks shrink a communicator, and members die at any point of it, in the midst of what they send. Models, by their
 * names:
 *   begin(), step(), choose(), spread(), finish(), received(), lost()
 *                  class Agreement in src/bootstrap/agreement.cpp, each of its methods by its own name
 *   Member         shrink() in src/api/split_shrink_grow.cpp: agree, meet, agree on whether all have met, and again if
 *                  not
 *   kill()         what a process had not sent is lost, then each connection ends: Membership::closed() in
 *                  src/bootstrap/membership.cpp
 * A message is one frame `Agree`; between two ranks they stay in order. Sets of ranks are masks.
 * Holds: all that are told the outcome of an agreement are told the same one; ranks that return a communicator return
 * the same one; whoever lives returns, with a communicator if nobody has died meanwhile.
 *
 * Broken: COMMIT_EARLY  a value is committed before all hold it
 *         NO_HOLD       a new coordinator does not heed the value that it holds
 *         HOLD_UNTOLD   a member does not tell its new coordinator which value it holds
 *         LOST_IGNORED  nobody looks again when a rank has died
 *         COMMIT_LOST   a coordinator that has finished does not answer those who lost the one before
 *         ALONE         after they have met nobody asks the others whether they have, too
 */
#ifndef RANKS
#define RANKS 3
#endif
#ifndef DEATHS
#define DEATHS 1
#endif

#define ROOM 10
#define NOBODY 255
#define bit_of(r) (1 << (r))
#define has(set, r) (((set) >> (r)) & 1)

mtype = { hold, propose, prepare, accept, commit, end };

/* step, ok, call, number, out */
chan pipe[RANKS * RANKS] = [ROOM] of { mtype, bit, byte, byte, byte };
#define to(r) pipe[me * RANKS + (r)]
#define from(r) pipe[(r) * RANKS + me]

typedef Value {
	byte number; /* 0: there is no value */
	bit ok;
	byte out;
}
typedef Proposal {
	byte call; /* 0: there is none */
	bit ok;
	byte out;
	Value held;
}

byte dead; /* as a god sees them */
byte next_number = 1;
byte met[16];  /* by number of an agreement: who has gone there to meet */
Value told[16]; /* by number */
byte number_of[16]; /* by how many agreements a rank has had: the number of the last one */
byte returned; /* the number of the communicator that was returned */
byte succeeded, failed; /* who has returned */

#define copy(x, y) x.number = y.number; x.ok = y.ok; x.out = y.out
#define clear(x) x.number = 0; x.ok = 0; x.out = 0

#define erase(p) \
	proposals[p].call = 0; \
	proposals[p].ok = 0; \
	proposals[p].out = 0; \
	clear(proposals[p].held)

#define send(who, what, good, turn, id, list) \
	if \
	:: has(dead, who) \
	:: else -> assert(nfull(to(who))); to(who)!what, good, turn, id, list \
	fi

inline find_coordinator()
{
	coordinator = 0;
	do
	:: coordinator < me && (has(out, coordinator) || has(gone, coordinator)) -> coordinator++
	:: else -> break
	od
}

/* step() follows. */
inline begin(list, content)
{
	call++;
	under_way = 1;
	out = list;
	ok = content;
	proposed_to = NOBODY;
	phase = agreeing;
	goes_on = 1
}

inline step()
{
	if
	:: under_way ->
		find_coordinator();
		if
		:: coordinator != me ->
			if
			:: proposed_to != coordinator ->
				proposed_to = coordinator;
				if
#ifdef HOLD_UNTOLD
				:: false
#else
				:: held.number != 0 -> send(coordinator, hold, held.ok, call, held.number, held.out)
#endif
				:: else
				fi;
				send(coordinator, propose, ok, call, 0, out)
			:: else
			fi
		:: else ->
			choose();
			if
			:: chosen.number != 0 -> spread()
			:: else
			fi
		fi
	:: else
	fi;
	coordinator = 0
}

inline choose()
{
	if
	:: chosen.number != 0
	:: else ->
#ifndef NO_HOLD
		copy(chosen, held);
#endif
		all_out = out;
		all_ok = ok;
		complete = 1;
		r = 0;
		do
		:: r == RANKS -> break
		:: r < RANKS && r == me -> r++
		:: r < RANKS && r != me ->
			all_out = all_out | (gone & bit_of(r));
			if
			:: has(all_out, r)
			:: !has(all_out, r) && proposals[r].call == 0 -> complete = 0
			:: !has(all_out, r) && proposals[r].call != 0 ->
				all_ok = all_ok && proposals[r].ok;
				all_out = all_out | proposals[r].out
			fi;
			r++
		od;
		if
		:: chosen.number == 0 && complete ->
			assert(next_number < 16);
			chosen.number = next_number;
			next_number++;
			chosen.ok = all_ok;
			chosen.out = all_out & ~bit_of(me)
		:: else
		fi;
		if
		:: chosen.number != 0 ->
			copy(held, chosen);
			asked = 0;
			asked_call = 0;
			accepted = 0
		:: else
		fi;
		r = 0;
		all_out = 0;
		all_ok = 0;
		complete = 0
	fi
}

#define counts(r) ((r) != me && !has(chosen.out, r) && !has(gone, r))

inline spread()
{
	complete = 1;
	r = 0;
	do
	:: r == RANKS -> break
	:: r < RANKS && (!counts(r) || has(accepted, r)) -> r++
	:: r < RANKS && counts(r) && !has(accepted, r) ->
#ifndef COMMIT_EARLY
		complete = 0;
#endif
		if
		:: has(asked, r) && (has(asked_call, r) || proposals[r].call == 0)
		:: else ->
			asked = asked | bit_of(r);
			if
			:: proposals[r].call != 0 -> asked_call = asked_call | bit_of(r)
			:: else
			fi;
			send(r, prepare, chosen.ok, proposals[r].call, chosen.number, chosen.out)
		fi;
		r++
	od;
	if
	:: complete ->
		r = 0;
		do
		:: r == RANKS -> break
		:: r < RANKS && !counts(r) -> r++
		:: r < RANKS && counts(r) ->
			send(r, commit, 0, 0, chosen.number, 0);
			if
			:: done[r] < accepted_call[r] -> done[r] = accepted_call[r]
			:: else
			fi;
			if
			:: proposals[r].call != 0 && proposals[r].call <= done[r] -> erase(r)
			:: else
			fi;
			r++
		od;
		finish()
	:: else
	fi;
	r = 0;
	complete = 0
}

/* With what is held, which is what was chosen. */
inline finish()
{
	copy(outcome, held);
	under_way = 0;
	clear(held);
	clear(chosen);
	asked = 0;
	asked_call = 0;
	accepted = 0;
	proposed_to = NOBODY;
	r = 0;
	do
	:: r == RANKS -> break
	:: r < RANKS ->
		if
		:: proposals[r].call != 0 && proposals[r].held.number == outcome.number ->
			done[r] = proposals[r].call;
			send(r, commit, 0, 0, outcome.number, 0);
			erase(r)
		:: else
		fi;
		accepted_call[r] = 0;
		r++
	od;
	r = 0
}

/* What goes on: step() follows. */
inline received(p)
{
	from(p)?m_step, m_ok, m_call, m_number, m_out;
	if
	:: m_step == hold ->
		holds[p].number = m_number;
		holds[p].ok = m_ok;
		holds[p].out = m_out
	:: m_step == propose ->
		if
		:: m_call <= done[p]
		:: m_call > done[p] && holds[p].number != 0 && holds[p].number == outcome.number ->
			done[p] = m_call;
#ifndef COMMIT_LOST
			send(p, commit, 0, 0, outcome.number, 0)
#endif
		:: else ->
			proposals[p].call = m_call;
			proposals[p].ok = m_ok;
			proposals[p].out = m_out;
			copy(proposals[p].held, holds[p]);
			goes_on = 1
		fi;
		clear(holds[p])
	:: m_step == prepare ->
		if
		:: outcome.number == m_number -> send(p, accept, 0, 0, m_number, 0)
		:: outcome.number != m_number && under_way &&
		   (held.number == m_number || (p == proposed_to && m_call == call)) ->
			held.number = m_number;
			held.ok = m_ok;
			held.out = m_out;
			send(p, accept, 0, call, m_number, 0)
		:: else
		fi
	:: m_step == accept ->
		if
		:: under_way && chosen.number != 0 && chosen.number == m_number ->
			accepted = accepted | bit_of(p);
			accepted_call[p] = m_call;
			goes_on = 1
		:: else
		fi
	:: m_step == commit ->
		if
		:: under_way && held.number != 0 && held.number == m_number -> finish()
		:: else
		fi
	:: m_step == end -> /* lost() */
		gone = gone | bit_of(p);
		erase(p);
		clear(holds[p]);
#ifndef LOST_IGNORED
		goes_on = 1
#endif
	fi;
	m_step = 0;
	m_ok = 0;
	m_call = 0;
	m_number = 0;
	m_out = 0
}

/* What a member is told is what others were told. */
inline check_outcome()
{
	assert(!has(outcome.out, me));
	if
	:: told[outcome.number].number == 0 -> copy(told[outcome.number], outcome)
	:: else -> assert(told[outcome.number].ok == outcome.ok && told[outcome.number].out == outcome.out)
	fi;
	if
	:: number_of[call] == 0 -> number_of[call] = outcome.number
	:: else -> assert(number_of[call] == outcome.number)
	fi
}

/* shrink() after an agreement. The first one says only who is left. */
inline conclude()
{
	check_outcome();
	if
	:: agreed == 0 || outcome.out != left_out -> /* (again) */
		agreed = outcome.number;
		left_out = outcome.out;
		met[agreed] = met[agreed] | bit_of(me);
		phase = meeting
	:: else ->
		phase = over;
		if
		:: outcome.ok -> succeed()
		:: else ->
			assert(dead != 0);
			failed = failed | bit_of(me)
		fi
	fi
}

inline succeed()
{
	assert(joined && (returned == 0 || returned == agreed));
	returned = agreed;
	succeeded = succeeded | bit_of(me)
}

#define everybody (bit_of(RANKS) - 1)
#define others (everybody & ~left_out)
#define lives (!has(dead, me))
#ifdef ALONE
#define met_all() phase = over; succeed()
#else
#define met_all() begin(left_out | gone, 1)
#endif

mtype = { agreeing, meeting, over };

proctype Member(byte me)
{
	mtype phase = agreeing;
	/* class Agreement */
	bit under_way, ok;
	byte call, out, proposed_to, coordinator;
	Value held, outcome, chosen;
	Proposal proposals[RANKS];
	Value holds[RANKS];
	byte done[RANKS], accepted_call[RANKS];
	byte asked, asked_call, accepted, gone;
	/* shrink() */
	byte agreed, left_out;
	bit joined;
	/* within one step */
	byte r, all_out, m_call, m_number, m_out;
	bit goes_on, all_ok, complete, m_ok;
	mtype m_step;

end_member:
	do
	:: atomic {
		if
		:: lives && call == 0 -> begin(gone, 0)
		:: lives && call != 0 && phase == agreeing && !under_way -> conclude()
		:: lives && phase == meeting && (met[agreed] & others) == others -> joined = 1; met_all()
		:: lives && phase == meeting && (dead & others) != 0 -> joined = 0; begin(left_out | gone, 0)
		:: lives && nempty(from(0)) -> received(0)
		:: lives && nempty(from(1)) -> received(1)
		:: lives && nempty(from(2)) -> received(2)
#if RANKS > 3
		:: lives && nempty(from(3)) -> received(3)
#endif
		fi;
		if
		:: goes_on -> goes_on = 0; step()
		:: else
		fi
	   }
	od
}

/* What it had not sent is lost, to each of the others another part. */
inline kill(victim)
{
	dead = dead | bit_of(victim);
	q = 0;
	do
	:: q == RANKS -> break
	:: q < RANKS ->
		length = len(pipe[q * RANKS + victim]);
		do /* nobody reads it */
		:: length != 0 -> pipe[q * RANKS + victim]?s, o, c, n, l; length--
		:: else -> break
		od;
		if
		:: has(dead, q)
		:: else ->
			length = len(pipe[victim * RANKS + q]);
			select(kept : 0 .. length);
			do
			:: length == 0 -> break
			:: length != 0 ->
				pipe[victim * RANKS + q]?s, o, c, n, l;
				if
				:: kept != 0 -> kept--; pipe[victim * RANKS + q]!s, o, c, n, l
				:: else
				fi;
				length--
			od;
			pipe[victim * RANKS + q]!end, 0, 0, 0, 0
		fi;
		q++
	od;
	q = 0;
	s = 0;
	o = 0;
	c = 0;
	n = 0;
	l = 0
}

proctype Death()
{
	byte count, victim, q, length, kept, c, n, l;
	bit o;
	mtype s;
	do
	:: atomic {
		count < DEATHS ->
		count++;
		select(victim : 0 .. RANKS - 1);
		if
		:: has(dead, victim)
		:: else -> kill(victim)
		fi;
		victim = 0
	   }
	:: break
	od
}

/* When nothing moves any more. */
proctype Watch()
{
	timeout;
	assert((dead | succeeded | failed) == everybody);
	assert(succeeded == 0 || (failed & ~dead) == 0)
}

init {
	byte i;
	atomic {
		do
		:: i < RANKS -> run Member(i); i++
		:: else -> break
		od;
		run Death();
		run Watch()
	}
}

