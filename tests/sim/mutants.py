#!/usr/bin/env python3
"""Puts known defects back into a copy of the library, and looks how many seeds of the simulation find each of them.

    tests/sim/mutants.py BUILD                  # all; BUILD has tests/sim/sim built
    tests/sim/mutants.py BUILD --only NAME ...

A mutant is an edit of a source file: a text that occurs once (tools/tidy.py checks it), and what stands there instead.
What includes the file is compiled again, and linked into another program in front of the library. The library itself
is never touched.
"""
import argparse
import json
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SIM = "tests/sim/sim"

# name: (what is wrong, file below src, text, what stands there instead)
MUTANTS = {
    "wake-up not sent": (
        "who commits or releases does not wake the peer", "kernels/host/channel.cpp",
        "for (WakeUp* const wake_up : to_wake_) wake(*wake_up);", ""),
    "copied, not woken": (
        "who sends what it only copied does not wake the peer", "kernels/host/channel.cpp",
        "    sender.ring();\n", ""),
    "no last look": (
        "a rank sleeps without a last look", "comm/driver.cpp",
        "if (!look() && !rest())", "if (!rest())"),
    "sleeping not said": (
        "a rank does not say that it sleeps before its last look", "comm/driver.cpp",
        "wake_up.sleeping.store(1, std::memory_order_seq_cst);", ""),
    "no wake-up at a death": (
        "a rank that sleeps is not woken when its session hears of a death", "comm/faults.cpp",
        "    if (gpu_ != nullptr) gpu_->abort();\n    wake(connections_.page().wake_up);\n}\n\nstd::optional",
        "    if (gpu_ != nullptr) gpu_->abort();\n}\n\nstd::optional"),
    "credit early": (
        "a writer takes one slot more than there are", "transport/fifo.hpp",
        "        released_ = released_by_all();\n        return next_ - released_ < depth();",
        "        released_ = released_by_all();\n        return next_ - released_ <= depth();"),
    "answer too early": (
        "a writer takes a place before it has read the peer's message there", "transport/exchange.hpp",
        "ahead < static_cast<std::int32_t>(depth)", "ahead <= static_cast<std::int32_t>(depth)"),
    "turn not compared": (
        "a reader takes any message in the cell, also an old one", "transport/fifo.hpp",
        "bool ready() const { return cell().turn.load(std::memory_order_acquire) == next_ + 1; }",
        "bool ready() const { return cell().turn.load(std::memory_order_acquire) != 0; }"),
    "numbers do not wrap": (
        "of two messages the one with the larger number is the later one", "transport/fifo.hpp",
        "return static_cast<std::int32_t>(a - b) > 0;", "return a > b;"),
    "settled at once": (
        "a call ends while a peer still reads the caller's memory", "transport/fifo.hpp",
        "        if (!refers_) return true;\n", "        return true;\n"),
    "posted receive of another message": (
        "a writer takes a receive that was posted for another message", "transport/fifo.hpp",
        "return l.turn.load(std::memory_order_acquire) == next_ + 1 ? &l : nullptr;",
        "return l.turn.load(std::memory_order_acquire) != 0 ? &l : nullptr;"),
    "closed not looked at": (
        "a rank uses the buffers of one that has given up", "kernels/host/channel.cpp",
        "if (page != nullptr && page->closed.load(std::memory_order_relaxed) != 0)", "if (page == nullptr)"),
    "fence away": (
        "nothing orders a rank's `sleeping` and its last look on other cores", "comm/driver.cpp",
        "const bool wake_ups_reach_us = all_fence && fence_all_cores();", "const bool wake_ups_reach_us = all_fence;"),
    "frame lost": (
        "of what can't be sent at once, the rest is dropped", "transport/tcp/outbox.cpp",
        "        if (sent_ < f.head_bytes + f.body_bytes) return;\n        sent_ -= f.head_bytes + f.body_bytes;",
        "        sent_ = 0;"),
    "credit lost": (
        "credits that are due are not sent over TCP", "transport/net/channel.cpp",
        "    endpoint.queue(h, nullptr);\n    told = h.credit;\n    settle = false;\n    return true;",
        "    told = h.credit;\n    settle = false;\n    return true;"),
    "farewell lost": (
        "a rank that leaves does not say so over TCP", "transport/net/link.cpp",
        "    for (const auto& stream : sockets_.all()) say(stream.get());", ""),
    "sockets not handed over": (
        "nobody looks at the sockets of a rank that sleeps", "transport/net/background.cpp",
        "    if (asleep || left.pending) watch();\n", ""),
    "look at sockets forgotten": (
        "the service thread stops to look although the rank has gone to sleep meanwhile",
        "transport/net/background.cpp",
        # With a pause where threads do not change: between two words.
        "        watched_.store(false, std::memory_order_seq_cst);\n        service_->change(epoll, 0);\n"
        "        if (!awake_.load(std::memory_order_seq_cst)) watch();\n",
        "        std::this_thread::sleep_for(milliseconds(3));\n"
        "        watched_.store(false, std::memory_order_seq_cst);\n        service_->change(epoll, 0);\n"),
    "silence not heard": (
        "a cable that is pulled for good is not noticed while something is to be sent", "transport/net/background.cpp",
        "        links_.listen_for_silence();\n", ""),
    "silence at once": (
        "what is not acknowledged at once is taken for silence", "bootstrap/silence.cpp",
        "return now - answered_;", "return (now - answered_) * 16;"),
    "call not repeated": (
        "a call over TCP that is not answered is not repeated", "transport/net/reception.cpp",
        "    if (loss.late || (again && !loss.wrong_secret)) {", "    if (again && !silent && !loss.wrong_secret) {"),
    "handshake not repeated": (
        "a request that was lost with its connection is not sent over the peer's (da34e56)", "bootstrap/pairs.cpp",
        "        if (for_descriptors && c->is_open()) m_.descriptors_.send_requests(*c);\n", ""),
    "lost pair not called": (
        "a connection for descriptors that was lost is not made again", "bootstrap/pairs.cpp",
        "    m_.after(pause, [this", "    m_.after(pause + std::chrono::hours(1), [this"),
    "rendezvous not told": (
        "a rank that hears of a death while it calls the rendezvous registers there without a word, and hangs up",
        "bootstrap/membership.cpp",
        "            send_news(connection);\n            if (news_.is(State::failed)) shut_soon();  // since it called",
        "            if (news_.is(State::failed)) shut_soon();  // since it called"),
    "offer not announced": (
        "who has asked for a descriptor that is not there yet never gets it", "bootstrap/descriptors.cpp",
        "    parked_.push_back({self, fetch});\n}", "}"),
    "death not passed on": (
        "news of a death go no further", "bootstrap/liveness.cpp",
        "        if (c.get() != from) c->send(fault)",
        "        if (from == nullptr && c.get() != from && !fault.died) c->send(fault)"),
    "first cause not waited for": (
        "an error that a dying rank causes is told before the session's news of the death", "comm/faults.cpp",
        "if (by_peer != nullptr && peer >= 0 && error.code() == tuttiRemoteError)",
        "if (by_peer == nullptr && peer < 0)"),
    "death while joining not told": (
        "the rendezvous does not tell that a rank has died", "bootstrap/directory.cpp",
        "        fail_all([&] {\n            const std::string what = loss.silent",
        "        if (rank < 0) fail_all([&] {\n            const std::string what = loss.silent"),
    "early commit": (
        "in shrink the coordinator commits before all hold the value", "bootstrap/agreement.cpp",
        "    if (!complete) return;\n    const Value value", "    const Value value"),
    "held value ignored": (
        "in shrink a new coordinator ignores what the last one may have told", "bootstrap/agreement.cpp",
        "    if (!held_ && !complete) return false;\n    if (!held_) {", "    if (!complete) return false;\n    {"),
    "resume not told": (
        "who makes connections anew does not say what it has got", "transport/net/link.cpp",
        "    if (healing_.begin(round)) {", "    if (healing_.begin(round) && round == 0) {"),
    "lost commit not repeated": (
        "in shrink nobody tells the outcome to who has lost its coordinator before it could", "bootstrap/agreement.cpp",
        "if (p.held && p.held->number == outcome_.number) {  // the", "if (p.held && ranks_ == 0) {  // the"),
    "bound too wide": (
        "a worker may pull one clock too early", "dp/ps/clocks.hpp",
        "if (bound_ < 0 || clock - least <= bound_)", "if (bound_ < 0 || clock - least <= bound_ + 1)"),
    "late gradient twice": (
        "a gradient that others have overtaken is applied twice", "dp/ps/updated_part.cpp",
        "        task.gradient.reset();\n",
        "        if (updates_ > worker.seen)\n"
        "            dp::update({&o, task.rate * c_.key.rate_factor, c_.key.weight_decay, updates_ + 1},\n"
        "                       {c_.key.number, place.first, place.count, 0}, place.type, values_.base(),\n"
        "                       place.push_type,\n"
        "                       task.gradient->base(), states_);\n"
        "        task.gradient.reset();\n"),
    "part of a gradient": (
        "what a worker has sent of a gradient when it dies is applied", "dp/ps/server.cpp",
        "        receive(w.link.up, to_worker, task.gradient->base(), task.bytes);",
        "        try {\n            receive(w.link.up, to_worker, task.gradient->base(), task.bytes);\n"
        "        } catch (...) {\n        }"),
    "gradient overtaken": (
        "of two requests for a part that wait the later one is handled first", "dp/ps/server.cpp",
        "part.mail.push_back(std::move(task));", "part.mail.push_front(std::move(task));"),
    "dead worker waited for": (
        "the bound on staleness counts workers that have died", "dp/ps/clocks.hpp",
        "of(worker).lives = false;", ""),
    "other server named": (
        "the error of a server that has died names another one", "dp/ps/client.cpp",
        "settings_.server_ranks[static_cast<std::size_t>(s.link.server)]", "settings_.server_ranks[0]"),
}

# Of what includes a header, only these use what the mutants change there.
USERS = {"transport/exchange.hpp": ("kernels_host_channel", "comm_connections"),
         "transport/fifo.hpp": ("kernels_host_channel", "transport_net_channel", "comm_connections")}

# What can't be shown here in principle, and what shows it.
INVISIBLE = {
    "fence away": "model wake_up (NO_FENCE)",
    # A coordinator tells the next one first, and what it has sent arrives.
    "held value ignored": "model shrink (NO_HOLD)",
}


def overlay(mutant, folder):
    """A copy of the file with the edit."""
    _, name, text, instead = mutant
    source = (ROOT / "src" / name).read_text(encoding="utf-8")
    place = folder / "src" / name
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(source.replace(text, instead), encoding="utf-8")
    return place


def ninja(build, *arguments):
    return subprocess.run(["ninja", "-C", str(build), *arguments], capture_output=True, text=True, check=True).stdout


def dependents(build, name):
    """The objects of the library that are made from the file."""
    found, current = [], None
    for line in ninja(build, "-t", "deps").splitlines():
        if line and not line[0].isspace():
            current = line.split(":", 1)[0]
        elif line.strip().endswith("src/" + name) and current.startswith(("src/libtutti-core.a.p/", "src/libroom-")):
            found.append(current)
    users = USERS.get(name) if not any("-unity" in f for f in found) else None
    return [f for f in found if users is None or pathlib.Path(f).name.startswith(users)]


def unit(source, original, changed, copy):
    """A copy of a file that includes others, with the changed one instead of the original."""
    lines = []
    for line in source.read_text(encoding="utf-8").splitlines():
        found = re.fullmatch(r"#include\s*<(.*)>", line)
        lines.append(f'#include "{changed}"' if found and pathlib.Path(found[1]).resolve() == original else line)
    copy.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(copy)


def make(build, mutant, folder):
    """The simulation with the mutant, as a program in the folder."""
    changed = overlay(mutant, folder)
    original = ROOT / "src" / mutant[1]
    commands = {c["output"]: c for c in json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))}
    objects = []
    for number, output in enumerate(dependents(build, mutant[1])):
        words = shlex.split(commands[output]["command"])
        first = next(i for i, word in enumerate(words) if word.startswith("-"))
        words[first:first] = ["-w", f"-I{folder / 'src'}"]
        objects.append(str(folder / f"{number}.o"))
        for i, word in enumerate(words):
            if word == output:
                words[i] = objects[-1]
            elif word in (output + ".d",):
                words[i] = objects[-1] + ".d"
            elif not word.startswith("-") and (build / word).resolve() == original:
                words[i] = str(changed)
            elif word.endswith(".cpp") and "-unity" in word:  # it includes the files of a room
                words[i] = unit(build / word, original, changed, folder / f"{number}.cpp")
        subprocess.run(words, cwd=build, check=True)
    link = shlex.split(ninja(build, "-t", "commands", SIM).splitlines()[-1])
    program = folder / "sim"
    link[link.index("-o") + 1] = str(program)
    last = max(i for i, word in enumerate(link) if word.endswith(".o"))
    link[last + 1:last + 1] = objects
    subprocess.run(link, cwd=build, check=True)
    return program


def hunt(program, sound, options):
    """(the first seed that fails with the mutant, and only with it, or None; why)"""
    first = options.first
    while first <= options.seeds:
        count = (options.seeds - first) // options.step + 1
        done = subprocess.run([program, "--first", str(first), "--seeds", str(count), "--step", str(options.step),
                               "--jobs", str(options.jobs), "--until-failure"], capture_output=True, text=True,
                              check=False)
        found = re.search(r"found by seed (\d+)", done.stdout)
        if found is None:
            break
        seed = int(found[1])
        if subprocess.run([sound, "--seed", str(seed)], capture_output=True, check=False).returncode == 0:
            why = re.search(rf"^seed {seed}: (.*)$", done.stdout, re.MULTILINE)
            return seed, why[1] if why else ""
        first = seed + options.step
    return None, ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--only", nargs="+", choices=MUTANTS, metavar="NAME", default=list(MUTANTS))
    parser.add_argument("--seeds", type=int, default=10_000, help="the last one")
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--step", type=int, default=1, help="16 with --first 9: parameter servers alone")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    build = options.build.resolve()
    missed = 0
    for name in options.only:
        with tempfile.TemporaryDirectory(prefix="mutant-") as place:
            folder = pathlib.Path(place)
            if name in INVISIBLE:
                print(f"| {name} | {INVISIBLE[name]} | | |", flush=True)
                continue
            program = make(build, MUTANTS[name], folder)
            began = time.monotonic()
            seed, why = hunt(program, build / SIM, options)
            took = time.monotonic() - began
        if seed is not None:
            print(f"| {name} | {seed} | {took:.0f} s | {why[:150]} |", flush=True)
        else:
            missed += 1
            print(f"| {name} | NOT FOUND | {took:.0f} s | |", flush=True)
    print(f"{missed} not found")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
