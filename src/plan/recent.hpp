// A table of bounded size that forgets what was used longest ago.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

namespace tutti {

/// Finds and adds with a logarithmic number of comparisons; only a full table is searched. Values stay where they are
/// until they are forgotten.
template <class Key, class Value>
class Recent {
  public:
    struct Entry {
        Value value;
        std::uint64_t used = 0;  // grows with every use()
    };

    /// nullptr if there is none.
    Entry* find(const Key& key) {
        const auto found = entries_.find(key);
        return found == entries_.end() ? nullptr : &found->second;
    }
    Entry& add(const Key& key, Value value) {
        Entry& entry = entries_.try_emplace(key, Entry{std::move(value)}).first->second;
        use(entry);
        return entry;
    }
    void use(Entry& entry) { entry.used = ++uses_; }

    /// While there are more than `most`: forgets the one that was used longest ago, which told(value) hears of before.
    template <class Told>
    void trim(std::size_t most, Told&& told) {
        while (entries_.size() > most) {
            auto oldest = entries_.begin();
            for (auto e = entries_.begin(); e != entries_.end(); ++e)
                if (e->second.used < oldest->second.used) oldest = e;
            told(oldest->second.value);
            entries_.erase(oldest);
        }
    }
    std::size_t size() const { return entries_.size(); }
    void clear() { entries_.clear(); }

  private:
    std::map<Key, Entry> entries_;
    std::uint64_t uses_ = 0;
};

}  // namespace tutti
