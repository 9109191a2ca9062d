// A table of bounded size that drops the least recently used entries.
#pragma once

#include <cstddef>
#include <list>
#include <utility>
#include <vector>

namespace tutti {

/// Finds and drops in constant time; adds in constant time on average, since the table grows with its entries. Values
/// keep their address until they are dropped. Not thread-safe.
template <class Key, class Value, class Hash>
class Recent {
  public:
    explicit Recent(std::size_t most) : most_(most), chains_(fewest_chains, entries_.end()) {}
    Recent(const Recent&) = delete;

    /// The value of `key`, which counts as used now; nullptr if there is none.
    Value* find(const Key& key) {
        for (At at = chain(key); at != entries_.end(); at = at->next) {
            if (!(at->key == key)) continue;
            if (at != entries_.begin()) entries_.splice(entries_.begin(), entries_, at);
            return &at->value;
        }
        return nullptr;
    }

    /// Adds the value of a key that is not in the table. Then, while there are more than most() entries, drops the
    /// least recently used ones for which may_go(value) is true; the others count as used now.
    template <class MayGo>
    Value& add(const Key& key, Value value, MayGo&& may_go) {
        if (2 * entries_.size() >= chains_.size()) spread_over(2 * chains_.size());
        entries_.push_front({key, std::move(value), chain(key)});
        chain(key) = entries_.begin();
        Value& added = entries_.front().value;
        for (std::size_t looks = entries_.size(); entries_.size() > most_ && --looks > 0;) {
            const At oldest = std::prev(entries_.end());
            if (may_go(std::as_const(oldest->value)))
                forget(oldest);
            else
                entries_.splice(entries_.begin(), entries_, oldest);
        }
        return added;
    }

    std::size_t size() const { return entries_.size(); }
    std::size_t most() const { return most_; }

  private:
    static constexpr std::size_t fewest_chains = 256;

    struct Entry;
    using At = typename std::list<Entry>::iterator;
    struct Entry {
        Key key;
        Value value;
        At next;  // in its chain
    };

    /// The chain of a key. The number of chains is a power of two.
    At& chain(const Key& key) { return chains_[Hash{}(key) & (chains_.size() - 1)]; }
    void spread_over(std::size_t chains) {
        chains_.assign(chains, entries_.end());
        for (At at = entries_.begin(); at != entries_.end(); ++at) at->next = std::exchange(chain(at->key), at);
    }
    void forget(At oldest) {
        At* link = &chain(oldest->key);
        while (*link != oldest) link = &(*link)->next;
        *link = oldest->next;
        entries_.erase(oldest);
    }

    const std::size_t most_;
    std::list<Entry> entries_;  // the most recently used one first
    std::vector<At> chains_;    // by hash: the first entry, or the list's end
};

}  // namespace tutti
