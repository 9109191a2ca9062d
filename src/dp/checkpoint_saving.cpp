// Saving: makes the files and their headers, writes what this rank owns, and replaces the index.
#include <sys/mman.h>

#include <algorithm>

#include "base/files.hpp"
#include "dp/checkpoint.hpp"

namespace tutti::dp {
namespace {

constexpr std::size_t block = std::size_t{1} << 20;    // bytes to sum and write at once, so that they stay in a cache
constexpr std::size_t stretch = std::size_t{8} << 20;  // bytes after which writeback to the disk is started

/// Uninitialized memory, in huge pages if there are any: with small pages its first use takes longer than the copy.
std::unique_ptr<std::byte[]> large_block(std::size_t bytes) {
    constexpr std::uintptr_t huge = std::uintptr_t{2} << 20;
    std::unique_ptr<std::byte[]> memory(new std::byte[bytes]);
    const auto from = reinterpret_cast<std::uintptr_t>(memory.get());
    const std::uintptr_t begin = (from + huge - 1) / huge * huge, end = (from + bytes) / huge * huge;
    if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);  // a hint
    return memory;
}

/// All ranks save the residuals of the same buckets. Where compression has kept something on some ranks only (a
/// newcomer has had no step, an iteration may have been given up), it is zero on the others. Collective.
void agree_on_residuals(const Ranks& ranks, const Storage& storage, const Kept& kept) {
    if (std::ranges::count(kept.residuals, nullptr) == std::ssize(kept.residuals)) return;  // the same on all ranks
    std::vector<std::uint8_t> any;
    for (const auto* const its : kept.residuals) any.push_back(its != nullptr && !its->empty());
    ranks.maximum(any);
    for (std::size_t b = 0; b < any.size(); ++b)
        if (any[b]) kept.residuals[b]->resize(storage.buckets()[b].count, 0.0f);
}

}  // namespace

Saving::Saving(const std::string& path, const Ranks& ranks, const Storage& storage, const Kept& kept, Manifest m,
               Staging* beside)
    : path_(path), manifest_(std::move(m)) {
    agree_on_residuals(ranks, storage, kept);
    const Catalogue catalogue(storage, kept, ranks.size());
    manifest_.ranks = ranks.size();
    random_bytes(&manifest_.number, sizeof manifest_.number);
    ranks.broadcast(std::span(&manifest_.number, 1), 0);
    const int writers = ranks.shards().owners * ranks.shards().copies;
    tensors_ = catalogue.tensors();
    while (models_ < tensors_.size() && catalogue.is_models(models_)) ++models_;
    deal_out(catalogue, static_cast<std::size_t>(writers));
    try {
        make_files(ranks);
        std::vector<Range> ranges = catalogue.ranges(ranks, true);
        const bool stages = beside != nullptr || storage.backends().on_gpu;
        if (beside != nullptr || ranks.any_gpu())  // the same on all ranks: some may be on CPUs
            ranks.all_or_none([&] {
                if (stages) stage(ranges, beside != nullptr ? *beside : own_);
            });
        if (stages) {
            thread_ = start_thread("tutti-dp-save", [this, ranges = std::move(ranges)] { write_all(ranges); });
        } else {
            write_all(ranges);
        }
    } catch (...) {
        for (const std::string& file : made_) remove_file(file);
        throw;
    }
}

Saving::~Saving() {
    if (thread_.joinable()) thread_.join();
    if (!named_)
        for (const std::string& file : made_) remove_file(file);
}

/// Deals tensors, in order, to at most `most` files of each kind, with about equally many bytes each.
void Saving::deal_out(const Catalogue& catalogue, std::size_t most) {
    sums_.assign(tensors_.size(), 0);
    file_of_.resize(tensors_.size());
    for (const bool models : {true, false}) {
        const std::size_t begin = models ? 0 : models_, end = models ? models_ : tensors_.size(),
                          before = files_.size();
        std::uint64_t all = 0, dealt = 0;
        for (std::size_t t = begin; t < end; ++t) all += tensors_[t].bytes();
        if (models) manifest_.bytes = all;
        for (std::size_t t = begin; t < end; ++t) {
            const std::size_t so_far = files_.size() - before;
            if (so_far == 0 || (so_far < most && dealt >= all / most * so_far)) files_.emplace_back();
            files_.back().tensors.push_back(t);
            file_of_[t] = files_.size() - 1;
            dealt += tensors_[t].bytes();
        }
        for (std::size_t f = before; f < files_.size(); ++f)
            files_[f].name =
                shard_name(models ? "model" : "optimizer", manifest_.number, f - before, files_.size() - before);
    }
    for (std::size_t t = 0; t < tensors_.size(); ++t)
        (catalogue.is_models(t) ? manifest_.model : manifest_.optimizer)[tensors_[t].name] = {files_[file_of_[t]].name,
                                                                                              0};
}

/// Makes the files, with their headers and room for the tensors; each rank makes some of them. Collective.
void Saving::make_files(const Ranks& ranks) {
    ranks.all_or_none([&] {
        if (ranks.rank() == 0) make_folder(path_);
    });
    ranks.all_or_none([&] {
        for (std::size_t f = 0; f < files_.size(); ++f) {
            std::vector<Tensor> its;
            for (const std::size_t t : files_[f].tensors) its.push_back(tensors_[t]);
            const std::string head = safetensors_head(its);
            std::uint64_t bytes = head.size();
            for (std::size_t i = 0; i < its.size(); ++i) {
                tensors_[files_[f].tensors[i]].at = its[i].at;
                bytes += its[i].bytes();
            }
            if (static_cast<int>(f % static_cast<std::size_t>(ranks.size())) != ranks.rank()) continue;
            const std::string name = path_ + "/" + files_[f].name;
            const Fd fd = make_file(name, bytes);
            made_.push_back(name);
            write_at(fd, 0, head.data(), head.size(), name);
            sync_file(fd, name);
        }
    });
}

/// Copies the ranges to the staging memory, which the next step does not touch, and makes them refer to the copies.
void Saving::stage(std::vector<Range>& ranges, Staging& staging) {
    std::size_t bytes = 0;
    for (const Range& r : ranges) bytes += r.bytes;
    if (staging.bytes < bytes) {
        staging = {};  // frees the old memory before more is allocated
        staging = {large_block(bytes), bytes};
    }
    std::byte* at = staging.memory.get();
    for (Range& r : ranges) {
        r.backend->copy(at, r.memory, r.bytes);
        r.memory = at;
        at += r.bytes;
    }
    for (const Range& r : ranges) r.backend->settle();
}

void Saving::write_all(const std::vector<Range>& ranges) {
    result_ = Verdict::of([&] {
        std::vector<Fd> fds(files_.size());
        const auto name = [&](std::size_t file) { return path_ + "/" + files_[file].name; };
        for (const Range& r : ranges) {
            const std::size_t file = file_of_[r.tensor];
            if (!fds[file]) fds[file] = open_file(name(file), true);
            for (std::size_t i = 0; i < r.bytes; i += block) {
                const std::size_t n = std::min(block, r.bytes - i);
                sums_[r.tensor] += sum_of(r.memory + i, r.first + i, n);
                const std::uint64_t at = tensors_[r.tensor].at + r.first;
                write_at(fds[file], at + i, r.memory + i, n, name(file));
                if ((i + n) % stretch == 0 || i + n == r.bytes) {
                    const std::size_t from = i / stretch * stretch;
                    begin_to_write(fds[file], at + from, i + n - from);
                }
            }
        }
        for (std::size_t f = 0; f < fds.size(); ++f)
            if (fds[f]) sync_file(fds[f], name(f));
    });
}

void Saving::finish(const Ranks& ranks) {
    if (thread_.joinable()) thread_.join();
    own_ = {};
    ranks.all_or_none([&] {
        if (result_.code != tuttiSuccess) throw Error(result_.code, result_.words);
    });
    named_ = true;  // rank 0 may write the index from here on, even if this rank does not hear of it
    ranks.sum(sums_);
    for (std::size_t t = 0; t < tensors_.size(); ++t)
        (t < models_ ? manifest_.model : manifest_.optimizer)[tensors_[t].name].sum = sums_[t];
    Verdict mine = Verdict::of([&] {
        if (ranks.rank() == 0) replace_file(index_path(path_), text_of(manifest_));
    });
    if (mine.code != tuttiSuccess) mine.code = tuttiInvalidUsage;
    const std::vector<Verdict> all = ranks.verdicts(mine);
    named_ = all.empty();
    judge(all);
    if (ranks.rank() == 0) remove_others();
}

/// Removes the files of the previous save, and of saves that were given up.
void Saving::remove_others() const {
    for (const std::string& file : files_in(path_))
        if (std::uint64_t number = 0; is_shard(file, &number) && number != manifest_.number)
            remove_file(path_ + "/" + file);
}

}  // namespace tutti::dp
