// A table of bounded size that forgets what was used longest ago.
#pragma once

#include <bit>
#include <cstddef>
#include <list>
#include <utility>
#include <vector>

namespace tutti {

/// Finds, adds and forgets in constant time. Values stay where they are until they are forgotten.
template <class Key, class Value, class Hash>
class Recent {
  public:
    explicit Recent(std::size_t most) : most_(most), chains_(std::bit_ceil(2 * most), entries_.end()) {}
    Recent(const Recent&) = delete;

    /// nullptr if there is none. Counts as its use.
    Value* find(const Key& key) {
        for (At at = chain(key); at != entries_.end(); at = at->next) {
            if (!(at->key == key)) continue;
            if (at != entries_.begin()) entries_.splice(entries_.begin(), entries_, at);
            return &at->value;
        }
        return nullptr;
    }

    /// Of a key that is not there. Then, while there are more than most(), forgets those that were used longest ago, as
    /// far as may_go(value) lets them; what has to stay counts as used now.
    template <class MayGo>
    Value& add(const Key& key, Value value, MayGo&& may_go) {
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
    struct Entry;
    using At = typename std::list<Entry>::iterator;
    struct Entry {
        Key key;
        Value value;
        At next;  // of its chain
    };

    /// A power of two of them.
    At& chain(const Key& key) { return chains_[Hash{}(key) & (chains_.size() - 1)]; }
    void forget(At oldest) {
        At* link = &chain(oldest->key);
        while (*link != oldest) link = &(*link)->next;
        *link = oldest->next;
        entries_.erase(oldest);
    }

    const std::size_t most_;
    std::list<Entry> entries_;  // the one that was used last comes first
    std::vector<At> chains_;    // by hash: the first entry, or the list's end
};

}  // namespace tutti
