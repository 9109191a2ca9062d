#include "schedule/match.hpp"

#include <algorithm>
#include <unordered_map>

#include "base/result.hpp"
#include "schedule/text.hpp"

namespace tutti {
namespace {

struct End {
    StepRef turn;
    std::uint32_t operand;
};

struct Link {
    Rank from, to;
    std::vector<End> ends[2];  // receives, sends
};

class Matcher {
  public:
    explicit Matcher(std::span<const Program> programs) : programs_(programs) {}

    Matching match() {
        result_.part_of.resize(programs_.size());
        for (std::uint32_t p = 0; p < programs_.size() && result_.error.empty(); ++p) collect(p);
        for (const Link& link : links_)
            if (result_.error.empty()) join(link);
        return std::move(result_);
    }

  private:
    void collect(std::uint32_t number) {
        const Program& p = programs_[number];
        result_.part_of[number].assign(p.operands.size(), Matching::none);
        for (std::vector<std::size_t>& side : known_) side.assign(static_cast<std::size_t>(p.ranks), unknown);
        for (std::uint32_t step = 0; step < p.steps.size(); ++step) {
            const Step& s = p.steps[step];
            for (std::uint32_t i = s.first; i < s.first + s.sources + s.sinks; ++i) {
                if (p.operands[i].place != Place::peer) continue;
                const bool sends = i >= s.first + s.sources;
                const Rank peer = p.operands[i].index;
                std::size_t& link = known_[sends][static_cast<std::size_t>(peer)];
                if (link == unknown) link = sends ? link_of(p.rank, peer) : link_of(peer, p.rank);
                std::vector<End>& ends = links_[link].ends[sends];
                if (!ends.empty() && ends.back().turn.program != number) {
                    result_.error = place_of(p, step) + text(": another program of this rank has %s already",
                                                             text_of(p.operands[i], !sends).c_str());
                    return;
                }
                ends.push_back({{number, step}, i});
            }
        }
    }

    std::size_t link_of(Rank from, Rank to) {
        const std::uint64_t key = static_cast<std::uint64_t>(from) << 32 | static_cast<std::uint32_t>(to);
        const auto [it, fresh] = index_.try_emplace(key, links_.size());
        if (fresh) links_.push_back({from, to, {}});
        return it->second;
    }

    void join(const Link& link) {
        const auto& [receives, sends] = link.ends;
        const std::size_t both = std::min(receives.size(), sends.size());
        for (std::size_t k = 0; k < both; ++k) {
            if (column(sends[k]) == column(receives[k]) && more(sends[k]) == more(receives[k])) continue;
            result_.error = mismatch(link, sends[k], receives[k]);
            return;
        }
        if (sends.size() > both)
            result_.error = place(sends[both]) + text(": sends message %zu to rank %d, which receives %zu of this rank",
                                                      both + 1, link.to, both);
        if (receives.size() > both)
            result_.error =
                place(receives[both]) +
                text(": receives message %zu of rank %d, which sends %zu to this rank", both + 1, link.from, both);
        if (result_.error.empty() && more(sends.back()))
            result_.error = place(sends.back()) + text(": the message to rank %d is never completed", link.to);
        if (result_.error.empty()) accept(link);
    }

    std::string mismatch(const Link& link, const End& sent, const End& received) const {
        if (column(sent) != column(received))
            return place(sent) +
                   text(": sends column %u to rank %d, which takes it as column %u in ", column(sent), link.to,
                        column(received)) +
                   place(received);
        return place(sent) +
               text(": %s to rank %d, which %s in ",
                    more(sent) ? "sends a part that is not the last one" : "completes a message", link.to,
                    more(sent) ? "takes it as the last one" : "expects more parts of it") +
               place(received);
    }

    void accept(const Link& link) {
        const auto& [receives, sends] = link.ends;
        const auto connection = static_cast<std::uint32_t>(result_.connections.size());
        const auto first = static_cast<std::uint32_t>(result_.messages.size());
        for (std::size_t k = 0; k < sends.size(); ++k) {
            const bool begins = k == 0 || !more(sends[k - 1]);
            if (begins) result_.messages.push_back({connection, sends[k].turn, {}, receives[k].turn, {}, 0});
            const auto part = static_cast<std::uint32_t>(result_.parts.size());
            result_.parts.push_back({static_cast<std::uint32_t>(result_.messages.size() - 1), begins, !more(sends[k])});
            Message& message = result_.messages.back();
            message.sent = sends[k].turn;
            message.released = receives[k].turn;
            const auto most = static_cast<std::uint32_t>(programs_[sends[k].turn.program].message_chunks);
            if (++message.parts > most) {
                result_.error = place(sends[k]) +
                                text(": is part %u of a message, the program says %u at most", message.parts, most);
                return;
            }
            result_.part_of[sends[k].turn.program][sends[k].operand] = part;
            result_.part_of[receives[k].turn.program][receives[k].operand] = part;
        }
        result_.connections.push_back({sends[0].turn.program, receives[0].turn.program, first,
                                       static_cast<std::uint32_t>(result_.messages.size()) - first,
                                       static_cast<std::uint32_t>(sends.size())});
    }

    bool more(const End& end) const { return programs_[end.turn.program].operands[end.operand].more; }
    unsigned column(const End& end) const { return programs_[end.turn.program].steps[end.turn.step].column; }
    std::string place(const End& end) const { return place_of(programs_[end.turn.program], end.turn.step); }

    static constexpr std::size_t unknown = SIZE_MAX;

    std::span<const Program> programs_;
    std::unordered_map<std::uint64_t, std::size_t> index_;
    std::vector<std::size_t> known_[2];  // of the current program, by peer: index into links_; receives, sends
    std::vector<Link> links_;
    Matching result_;
};

}  // namespace

Matching match(std::span<const Program> programs) {
    return Matcher(programs).match();
}

}  // namespace tutti
