#include "execute.hpp"

#include <bit>
#include <deque>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <stdexcept>

namespace tutti {
namespace {

struct Wrong : std::runtime_error {
    using std::runtime_error::runtime_error;
};

void check(bool holds, const char* what) {
    if (!holds) throw Wrong(what);
}

// A number that does not care for the order of additions, and one that does.
struct Number {
    std::uint64_t sum, bits;
};

std::uint64_t scramble(std::uint64_t x) {
    x = (x ^ x >> 31) * 0x7fb5d329728ea185u;
    x = (x ^ x >> 27) * 0x81dadef4bc2dd44du;
    return x ^ x >> 33;
}

constexpr std::uint64_t scale = 0x9e3779b97f4a7c15u;  // what `completes` multiplies with

using Cell = std::pair<Place, int>;
using Ends = std::pair<Rank, Rank>;

struct Packet {
    Number number;  // if it is a copy
    unsigned column;
    bool last;
    std::uint64_t heard;  // programs that the sender has heard of
    int program = -1;     // else it is in this program's cell
    Cell cell{};
};

struct Wire {
    std::deque<Packet> packets;
    std::size_t messages = 0, occupied = 0;   // complete and not begun to be received; slots in use
    bool sending = false, receiving = false;  // in the middle of a message
};

class Execution {
  public:
    Execution(std::span<const Program> programs, const Conditions& how)
        : programs_(programs), how_(how), random_(how.seed), at_(programs.size()), cells_(programs.size()) {
        for (std::size_t p = 0; p < programs.size(); ++p) heard_.push_back(std::uint64_t{1} << p);
    }

    void run() {
        for (std::size_t p = 0; p < programs_.size(); ++p) prepare(static_cast<int>(p));
        for (std::size_t left = steps_; left > 0; --left) step(anyone());
        for (const auto& [ends, wire] : wires_) check(wire.packets.empty() && !wire.sending, "a message was left over");
        for (std::size_t p = 0; p < programs_.size(); ++p) check_outputs(static_cast<int>(p));
    }

  private:
    Number input_of(int program, int chunk) const {
        const std::uint64_t x = scramble(program * 1000003u + chunk + 1);
        return {x, scramble(x)};
    }

    void prepare(int number) {
        const Program& p = programs_[number];
        steps_ += p.steps.size();
        const bool has_input = p.collective != Collective::broadcast || p.rank == p.root;
        for (int c = 0; has_input && c < p.input_rows * p.columns; ++c)
            cells_[number][cell(p, input(c))] = input_of(number, c);
        for (const Step& s : p.steps) {
            check(s.sources > 0 && s.sinks > 0, "a step has no source or no sink");
            check(reduces(p.collective) || (s.sources == 1 && !s.completes), "there is nothing to reduce");
            check(distinct(p.sources(s)) && distinct(p.sinks(s)), "a step has a peer twice on one side");
            for (const Operand o : p.sources(s)) {
                look_at(p, s, o, true);
                if (o.place == Place::peer) receive_lands(number, s, o);
            }
            for (const Operand o : p.sinks(s)) {
                look_at(p, s, o, false);
                if (o.place == Place::peer) {
                    int& parts = parts_[{p.rank, o.index}];
                    check(++parts <= p.message_chunks, "a message has more chunks than was said");
                    if (!o.more) parts = 0;
                    check(senders_.emplace(Ends{p.rank, o.index}, number).first->second == number,
                          "two programs send to one peer");
                }
            }
        }
    }

    static bool distinct(std::span<const Operand> side) {
        std::set<Rank> peers;
        for (const Operand o : side)
            if (o.place == Place::peer && !peers.insert(o.index).second) return false;
        return true;
    }

    void receive_lands(int number, const Step& s, Operand from) {
        const Ends ends{from.index, programs_[number].rank};
        const bool alone = !from.more && !receiving_[ends];
        receiving_[ends] = from.more;
        check(receivers_.emplace(ends, number).first->second == number, "two programs receive from one peer");
        std::optional<Cell> posted_receive;
        for (const Operand o : programs_[number].sinks(s))
            if (s.sources == 1 && alone && !posted_receive && o.place != Place::peer)
                posted_receive = cell(programs_[number], o);
        posted_receives_[ends].push_back(posted_receive);
    }

    void look_at(const Program& p, const Step& s, Operand o, bool source) const {
        if (o.place == Place::peer) {
            check(o.index >= 0 && o.index < p.ranks && o.index != p.rank, "there is no such peer");
            return;
        }
        check(!o.more, "a slice has no parts");
        const int rows = o.place == Place::input ? p.input_rows : p.output_rows;
        const int chunks = o.place == Place::scratch ? p.scratch_chunks : rows * p.columns;
        check(o.index >= 0 && o.index < chunks, "there is no such chunk");
        check(o.index % p.columns == static_cast<int>(s.column), "a chunk has another length");
        check(source || o.place != Place::input, "an input is written");
        check(p.collective != Collective::reduce || p.rank == p.root || o.place != Place::output, "there is no output");
    }

    Cell cell(const Program& p, Operand o) const {
        if (how_.in_place) switch (p.collective) {
                case Collective::all_reduce:
                case Collective::broadcast:
                case Collective::reduce:
                    if (o.place == Place::output) o.place = Place::input;
                    break;
                case Collective::reduce_scatter:
                    if (o.place == Place::output) o = input(p.rank * p.columns + o.index);
                    break;
                case Collective::all_gather:
                    if (o.place == Place::input) o = output(p.rank * p.columns + o.index);
                    break;
                case Collective::gather:
                    if (o.place == Place::input && p.rank == p.root) o = output(p.rank * p.columns + o.index);
                    break;
                case Collective::scatter:
                    if (o.place == Place::output && p.rank == p.root) o = input(p.rank * p.columns + o.index);
                    break;
                default:
                    break;
            }
        return {o.place, o.index};
    }

    int anyone() {
        std::vector<int> able;
        for (std::size_t p = 0; p < programs_.size(); ++p)
            if (at_[p] < programs_[p].steps.size() && can_run(programs_[p])) able.push_back(static_cast<int>(p));
        check(!able.empty(), "everyone waits");
        return able[random_() % able.size()];
    }

    bool can_run(const Program& p) {
        const Step& s = p.steps[at_[&p - programs_.data()]];
        struct Use {
            std::size_t messages = 0;
            bool changed = false, middle = false;
        };
        std::map<Ends, Use> taken, begun;
        for (const Operand o : p.sources(s)) {
            if (o.place != Place::peer) continue;
            const Wire& wire = wires_[{o.index, p.rank}];
            Use& use = taken[{o.index, p.rank}];
            if (!(use.changed ? use.middle : wire.receiving) && ++use.messages > wire.messages) return false;
            use = {use.messages, true, o.more};
        }
        for (const Operand o : p.sinks(s)) {
            if (o.place != Place::peer) continue;
            const Wire& wire = wires_[{p.rank, o.index}];
            Use& use = begun[{p.rank, o.index}];
            if (!(use.changed ? use.middle : wire.sending) && ++use.messages + wire.occupied > how_.depth) return false;
            use = {use.messages, true, o.more};
        }
        return true;
    }

    Number read(int program, Cell c) const {
        const auto it = cells_[program].find(c);
        check(it != cells_[program].end(), "a chunk is read before it is written");
        return it->second;
    }

    Number receive(int number, const Step& s, Operand from) {
        Wire& wire = wires_[{from.index, programs_[number].rank}];
        const Packet packet = wire.packets.front();
        wire.packets.pop_front();
        check(packet.column == s.column, "a message has another length");
        check(packet.last == !from.more, "a message ends at another part");
        if (!wire.receiving) --wire.messages;
        wire.receiving = from.more;
        if (!from.more) --wire.occupied;
        heard_[number] |= packet.heard;
        return packet.program < 0 ? packet.number : read(packet.program, packet.cell);
    }

    void step(int number) {
        const Program& p = programs_[number];
        const Step& s = p.steps[at_[number]++];
        std::vector<Number> terms;
        for (const Operand o : p.sources(s))
            terms.push_back(o.place == Place::peer ? receive(number, s, o) : read(number, cell(p, o)));
        Number result{0, terms.size()};
        for (const Number& t : terms) result = {result.sum + t.sum, scramble(result.bits) * 3 + t.bits};
        if (terms.size() == 1) result = terms[0];
        if (s.completes) result.sum *= scale;
        for (const Operand o : p.sinks(s))
            if (o.place != Place::peer) cells_[number][cell(p, o)] = result;
        for (const Operand o : p.sinks(s))
            if (o.place == Place::peer) send(number, s, o, result);
    }

    void send(int number, const Step& s, Operand to, const Number& result) {
        const Program& p = programs_[number];
        const Ends ends{p.rank, to.index};
        Wire& wire = wires_[ends];
        Packet packet{result, s.column, !to.more, heard_[number], -1, {}};
        const bool alone = !to.more && !wire.sending;
        if (!wire.sending) ++wire.occupied;
        wire.sending = to.more;
        if (!to.more) ++wire.messages;
        const std::vector<std::optional<Cell>>& posted_receives = posted_receives_[ends];
        const std::size_t k = sent_[ends]++;
        std::vector<Cell> addresses;  // that have the value now
        if (s.sources == 1 && !s.completes && p.sources(s)[0].place != Place::peer)
            addresses.push_back(cell(p, p.sources(s)[0]));
        for (const Operand o : p.sinks(s))
            if (o.place != Place::peer) addresses.push_back(cell(p, o));
        const bool can_pull = alone && how_.pull && !addresses.empty();
        const bool can_push = alone && how_.push && k < posted_receives.size() && posted_receives[k];
        if (can_push && !(can_pull && random_() % 2)) {
            packet.program = receivers_[ends];
            packet.cell = *posted_receives[k];
            cells_[packet.program][packet.cell] = result;
        } else if (can_pull) {
            packet.program = number;
            packet.cell = addresses[random_() % addresses.size()];
        }
        wire.packets.push_back(packet);
    }

    Number expected(int number, int chunk) const {
        const Program& p = programs_[number];
        if (p.collective == Collective::broadcast) return input_of(p.root, chunk);
        if (p.collective == Collective::scatter) return input_of(p.root, p.rank * p.columns + chunk);
        if (p.collective == Collective::all_to_all)
            return input_of(chunk / p.columns, p.rank * p.columns + chunk % p.columns);
        if (p.collective == Collective::all_gather || p.collective == Collective::gather)
            return input_of(chunk / p.columns, chunk % p.columns);
        if (p.collective == Collective::recv)
            for (std::size_t q = 0; q < programs_.size(); ++q)
                if (programs_[q].collective == Collective::send && programs_[q].rank == p.root &&
                    programs_[q].root == p.rank)
                    return input_of(static_cast<int>(q), chunk);
        Number sum{0, 0};
        if (p.collective == Collective::reduce_scatter) chunk += p.rank * p.columns;
        for (Rank r = 0; r < p.ranks; ++r) sum.sum += input_of(r, chunk).sum;
        return {sum.sum * scale, 0};
    }

    void check_outputs(int number) const {
        const Program& p = programs_[number];
        if (p.collective == Collective::reduce && p.rank != p.root) return;
        if (p.collective == Collective::barrier) {
            check(heard_[number] == heard_[0] && std::has_single_bit(heard_[number] + 1) &&
                      std::popcount(heard_[number]) == static_cast<int>(programs_.size()),
                  "a rank has not heard of all others");
            return;
        }
        for (int c = 0; c < p.output_rows * p.columns; ++c) {
            const Number found = read(number, cell(p, output(c)));
            check(found.sum == expected(number, c).sum, "an output has another value");
            if (p.collective == Collective::all_reduce)
                check(found.bits == read(0, cell(programs_[0], output(c))).bits, "ranks get different bits");
        }
    }

    std::span<const Program> programs_;
    Conditions how_;
    std::mt19937_64 random_;
    std::size_t steps_ = 0;
    std::vector<std::size_t> at_;
    std::vector<std::map<Cell, Number>> cells_;
    std::map<Ends, Wire> wires_;
    std::vector<std::uint64_t> heard_;  // [program]
    std::map<Ends, int> parts_;         // prepare: of the message under way
    std::map<Ends, bool> receiving_;    // prepare: in the middle of a message
    std::map<Ends, std::vector<std::optional<Cell>>> posted_receives_;
    std::map<Ends, std::size_t> sent_;
    std::map<Ends, int> senders_, receivers_;
};

}  // namespace

std::string execute(std::span<const Program> programs, const Conditions& conditions) {
    try {
        Execution(programs, conditions).run();
        return {};
    } catch (const Wrong& wrong) {
        return wrong.what();
    }
}

}  // namespace tutti
