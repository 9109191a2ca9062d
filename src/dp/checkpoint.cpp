#include "dp/checkpoint.hpp"

#include <sys/mman.h>

#include <algorithm>

#include "base/files.hpp"

namespace tutti::dp {
namespace {

constexpr std::size_t block = std::size_t{1} << 20;    // is summed while it is in a cache
constexpr std::size_t stretch = std::size_t{8} << 20;  // that the disk works on beside

/// Uninitialized memory, in huge pages where there are any: with small ones its first use takes longer than the copy.
std::unique_ptr<std::byte[]> large_block(std::size_t bytes) {
    constexpr std::uintptr_t huge = std::uintptr_t{2} << 20;
    std::unique_ptr<std::byte[]> memory(new std::byte[bytes]);
    const auto from = reinterpret_cast<std::uintptr_t>(memory.get());
    const std::uintptr_t begin = (from + huge - 1) / huge * huge, end = (from + bytes) / huge * huge;
    if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);  // a wish
    return memory;
}

/// As PyTorch calls what they are.
std::vector<std::string> state_names(tuttiDpOptimizerKind_t kind) {
    const int states = states_of(kind);
    if (states == 0) return {};
    if (states == 1) return {"momentum_buffer."};
    if (kind == tuttiDpCallback) return {"state0.", "state1."};
    return {"exp_avg.", "exp_avg_sq."};
}

Tensor tensor_of(const std::string& name, DataType type, const Parameter& p) {
    return {name, type, p.shape, p.count, 0};
}

/// What a rank had kept of a parameter.
std::string residual_name(int rank, const Parameter& p) {
    return "residual." + std::to_string(rank) + "." + p.name;
}

/// What was kept of a bucket that is the same on all ranks. Another layout has other names, and begins anew.
Tensor factor_of(std::size_t bucket, std::size_t elements, std::size_t count) {
    return {text("factor.%zu.%zu", bucket, elements), DataType::float32, {count}, count, 0};
}

std::string index_path(const std::string& path) {
    return path + "/" + index_name;
}

const Source& source_of(Sources& sources, const std::string& path, const Manifest::Where& where) {
    const std::string name = path + "/" + where.file;
    return sources.try_emplace(name, name).first->second;
}

[[noreturn]] void refuse_changed(const std::string& path, const Manifest::Where& where, const std::string& tensor) {
    fail(tuttiInvalidUsage, "tuttiDpLoad: '%s' in '%s/%s' is torn or was changed", tensor.c_str(), path.c_str(),
         where.file.c_str());
}

const Manifest::Where& where_of(const Manifest& m, const Catalogue& catalogue, std::size_t tensor) {
    return (catalogue.is_models(tensor) ? m.model : m.optimizer).at(catalogue.tensors()[tensor].name);
}

/// Throws if the checkpoint is of other parameters, or of another kind of optimizer.
void compare(const std::string& path, const Manifest& m, const Catalogue& catalogue) {
    std::size_t models = 0;
    const auto refuse = [&](bool here, bool model, const std::string& name) {
        fail(tuttiInvalidUsage, "tuttiDpLoad: '%s' is %s here, but%s in '%s'%s", name.c_str(),
             model  ? here ? "a parameter" : "no parameter"
             : here ? "a state of the optimizer"
                    : "no state of the optimizer",
             here ? " not" : "", path.c_str(), model ? "" : ": it was saved with another optimizer");
    };
    for (std::size_t t = 0; t < catalogue.tensors().size(); ++t) {
        const bool model = catalogue.is_models(t);
        models += model;
        const std::string& name = catalogue.tensors()[t].name;
        if (!(model ? m.model : m.optimizer).contains(name)) refuse(true, model, name);
    }
    for (const auto* there : {&m.model, &m.optimizer}) {
        const bool model = there == &m.model;
        if (there->size() == (model ? models : catalogue.tensors().size() - models)) continue;
        for (const auto& [name, where] : *there) {
            // Of any use only where there is compression.
            if (!model && (name.starts_with("residual.") || name.starts_with("factor."))) continue;
            const auto known = std::ranges::find(catalogue.tensors(), name, &Tensor::name);
            if (known == catalogue.tensors().end()) refuse(false, model, name);
        }
    }
}

/// By bucket: what this rank shall have kept. Empty: nothing.
std::vector<std::vector<float>> read_residuals(const std::string& path, const Manifest& m, Sources& sources,
                                               const Ranks& ranks, const Storage& storage,
                                               const std::vector<std::vector<float>*>& residuals) {
    std::vector<std::vector<float>> all(residuals.size());
    const bool same = m.ranks == ranks.size();
    for (std::size_t p = 0; p < storage.parameters().size(); ++p) {
        const Parameter& q = storage.parameters()[p];
        const std::size_t bucket = storage.layout().bucket[p];
        if (!q.is_trained() || residuals[bucket] == nullptr) continue;
        std::vector<float> one(q.count);
        for (int r = same ? ranks.rank() : 0; r < (same ? ranks.rank() + 1 : m.ranks); ++r) {
            const Tensor tensor = tensor_of(residual_name(r, q), DataType::float32, q);
            const auto found = m.optimizer.find(tensor.name);
            if (found == m.optimizer.end()) continue;
            const Source& source = source_of(sources, path, found->second);
            if (source.read(source.find(tensor), 0, reinterpret_cast<std::byte*>(one.data()), tensor.bytes()) !=
                found->second.sum)
                refuse_changed(path, found->second, tensor.name);
            all[bucket].resize(storage.buckets()[bucket].count, 0.0f);
            for (std::size_t i = 0; i < q.count; ++i)
                all[bucket][storage.layout().offset[p] + i] += same ? one[i] : one[i] / static_cast<float>(m.ranks);
        }
    }
    return all;
}

/// By bucket, the same on all ranks. Empty: there was none of this bucket.
std::vector<std::vector<float>> read_factors(const std::string& path, const Manifest& m, Sources& sources,
                                             const Storage& storage, const std::vector<std::vector<float>*>& factors) {
    std::vector<std::vector<float>> all(factors.size());
    for (std::size_t b = 0; b < factors.size(); ++b) {
        if (factors[b] == nullptr) continue;
        const std::string name = factor_of(b, storage.buckets()[b].count, 0).name;
        const auto found = m.optimizer.find(name);
        if (found == m.optimizer.end()) continue;
        const Source& source = source_of(sources, path, found->second);
        const Tensor& tensor = source.named(name);
        if (tensor.type != DataType::float32) refuse_changed(path, found->second, name);
        all[b].resize(tensor.count);
        if (source.read(tensor, 0, reinterpret_cast<std::byte*>(all[b].data()), tensor.bytes()) != found->second.sum)
            refuse_changed(path, found->second, name);
    }
    return all;
}

}  // namespace

Catalogue::Catalogue(const Storage& storage, const Kept& kept, int ranks) : Catalogue(storage) {
    from_ = &kept;
    host_ = private_host();
    first_kept_ = tensors_.size();
    for (std::size_t p = 0; p < storage.parameters().size(); ++p)
        if (storage.parameters()[p].is_trained())
            if (const auto* const its = kept.residuals[storage.layout().bucket[p]]; its != nullptr && !its->empty())
                kept_.push_back(p);
    for (int r = 0; r < ranks; ++r)
        for (const std::size_t p : kept_) {
            const Parameter& q = storage.parameters()[p];
            tensors_.push_back(tensor_of(residual_name(r, q), DataType::float32, q));
        }
    first_factor_ = tensors_.size();
    for (const Bucket& b : storage.buckets()) {
        const auto* const its = kept.factors[b.index];
        if (its == nullptr || its->empty()) continue;
        factors_.push_back(b.index);
        tensors_.push_back(factor_of(b.index, b.count, its->size()));
    }
}

Catalogue::Catalogue(const Storage& storage) : storage_(storage) {
    const tuttiDpOptimizerKind_t kind = storage.options().optimizer.kind;
    for (const Parameter& p : storage.parameters()) tensors_.push_back(tensor_of(p.name, p.type, p));
    models_ = tensors_.size();
    for (const Parameter& p : storage.parameters()) {
        first_state_.push_back(tensors_.size());
        if (!p.is_trained()) continue;
        const DataType type = state_type(p.type);
        if (has_master(kind, p.type)) tensors_.push_back(tensor_of("master." + p.name, type, p));
        for (const std::string& state : state_names(kind)) tensors_.push_back(tensor_of(state + p.name, type, p));
    }
}

std::vector<Range> Catalogue::ranges(const Ranks& ranks, bool saves) const {
    std::vector<Range> all;
    const Backends& backends = storage_.backends();
    const Shards& shards = ranks.shards();
    for (const Bucket& b : storage_.buckets()) {
        const std::size_t begin = b.own_begin + (saves ? shards.begin_of(b.own_count, shards.copy) : 0);
        const std::size_t end = b.own_begin + (saves ? shards.begin_of(b.own_count, shards.copy + 1) : b.own_count);
        const std::size_t size = size_of(b.data_type), state_size = size_of(state_type(b.data_type));
        for (Piece piece : pieces_of(storage_.layout(), storage_.parameters(), b.index, begin, end)) {
            piece.at += begin - b.own_begin;
            std::byte* const twin = b.host_data == nullptr ? nullptr : b.host_data + piece.at * size;
            all.push_back({piece.parameter, piece.first * size, piece.count * size, storage_.value_of(b, piece),
                           backends.values.get(), twin});
            std::size_t tensor = first_state_[piece.parameter];
            for (std::byte* const states : {b.states.master, b.states.state[0], b.states.state[1]})
                if (states != nullptr)
                    all.push_back({tensor++, piece.first * state_size, piece.count * state_size,
                                   states + piece.at * state_size, backends.states.get(), nullptr});
        }
    }
    for (std::size_t p = 0; p < models_; ++p) {
        const Parameter& q = storage_.parameters()[p];
        if (q.is_trained()) continue;
        const std::size_t size = size_of(q.type), n = static_cast<std::size_t>(ranks.size());
        const auto share = [&](int r) { return q.count / n * static_cast<std::size_t>(r); };
        const bool last = ranks.rank() + 1 == ranks.size(), cut = saves && q.kind == tuttiDpFrozen;
        const std::size_t begin = cut ? share(ranks.rank()) : 0;
        std::size_t end = cut && !last ? share(ranks.rank() + 1) : q.count;
        if (saves && q.kind == tuttiDpBuffer && ranks.rank() != 0) end = 0;
        all.push_back({p, begin * size, (end - begin) * size, storage_.values_of(p) + begin * size,
                       backends.values.get(), nullptr});
    }
    std::size_t tensor = first_kept_ + kept_.size() * static_cast<std::size_t>(ranks.rank());
    for (const std::size_t p : kept_) {
        float* const at = from_->residuals[storage_.layout().bucket[p]]->data() + storage_.layout().offset[p];
        all.push_back({tensor++, 0, storage_.parameters()[p].count * sizeof(float), reinterpret_cast<std::byte*>(at),
                       host_.get(), nullptr});
    }
    for (std::size_t f = 0; f < factors_.size() && ranks.rank() == 0; ++f) {
        std::vector<float>& its = *from_->factors[factors_[f]];
        all.push_back({first_factor_ + f, 0, its.size() * sizeof(float), reinterpret_cast<std::byte*>(its.data()),
                       host_.get(), nullptr});
    }
    return all;
}

// -------------------------------------------------------------------------------------------------------------- saving

Saving::Saving(const std::string& path, const Ranks& ranks, const Storage& storage, const Kept& kept, Manifest m,
               bool beside)
    : path_(path), manifest_(std::move(m)) {
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
        if (beside || storage.backends().on_gpu) {
            ranks.all_or_none([&] { stage(ranges); });
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

/// Tensors in their order, to at most so many files of each kind, each of about as many bytes.
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

/// Each rank makes some of the files, with their heads and room for the rest.
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

/// A copy of what is to be written, which the next step does not touch.
void Saving::stage(std::vector<Range>& ranges) {
    std::size_t bytes = 0;
    for (const Range& r : ranges) bytes += r.bytes;
    staged_ = large_block(bytes);
    std::byte* at = staged_.get();
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
    staged_.reset();
    ranks.all_or_none([&] {
        if (result_.code != tuttiSuccess) throw Error(result_.code, result_.words);
    });
    named_ = true;  // rank 0 may write the index from here on, also where others don't hear of it
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

/// Of the save before, and of those that came to nothing.
void Saving::remove_others() const {
    for (const std::string& file : files_in(path_))
        if (std::uint64_t number = 0; is_shard(file, &number) && number != manifest_.number)
            remove_file(path_ + "/" + file);
}

// ------------------------------------------------------------------------------------------------------------- loading

Loading::Loading(const std::string& path, const Ranks& ranks, Storage& storage, const Kept& kept)
    : path_(path),
      storage_(storage),
      kept_(kept),
      catalogue_(storage),
      sums_(catalogue_.tensors().size(), 0),
      again_(sums_) {
    ranks.all_or_none([&] {
        if (!file_exists(index_path(path)))
            fail(tuttiInvalidUsage,
                 "tuttiDpLoad: '%s' is no checkpoint: there is no %s in it (before it had that name, a checkpoint was "
                 "a text file and parts beside it, which this version does not read)",
                 path.c_str(), index_name);
        manifest_ = manifest_from(read_file(index_path(path)), index_path(path));
        compare(path, manifest_, catalogue_);
        find_parts(catalogue_.ranges(ranks, false));
        scratch_.resize(storage.backends().on_gpu ? stretch : summed_once);
        for (const Part& p : parts_)
            sums_[p.range.tensor] += p.source->sum(*p.tensor, p.range.first, p.range.bytes, scratch_);
        residuals_ = read_residuals(path, manifest_, sources_, ranks, storage, kept.residuals);
        factors_ = read_factors(path, manifest_, sources_, storage, kept.factors);
    });
    std::vector<std::uint64_t> sums = sums_;
    const auto copies = static_cast<std::uint64_t>(ranks.shards().copies);  // each has been read
    if (!storage.options().replicated()) ranks.sum(sums);
    for (std::size_t t = 0; t < sums.size(); ++t)
        if (catalogue_.is_everybodys(t)) sums[t] = sums_[t];
    ranks.all_or_none([&] {
        for (std::size_t t = 0; t < sums.size(); ++t)
            if (const Manifest::Where& where = where_of(manifest_, catalogue_, t);
                where.sum * (catalogue_.is_everybodys(t) ? 1 : copies) != sums[t])
                refuse_changed(path, where, catalogue_.tensors()[t].name);
    });
}

/// In the order of files and places, so that the system reads ahead.
void Loading::find_parts(const std::vector<Range>& ranges) {
    for (const Range& r : ranges) {
        const Source& source = source_of(sources_, path_, where_of(manifest_, catalogue_, r.tensor));
        parts_.push_back({r, &source, &source.find(catalogue_.tensors()[r.tensor])});
    }
    std::ranges::sort(parts_, {}, [](const Part& p) {
        return std::pair<const std::string&, std::uint64_t>(p.source->path, p.tensor->at + p.range.first);
    });
}

/// The sum of a part that is where it belongs. On ranks on GPUs it comes by way of scratch_.
std::uint64_t Loading::take(const Part& p) {
    const Range& r = p.range;
    if (!storage_.backends().on_gpu) return p.source->read(*p.tensor, r.first, r.memory, r.bytes);
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < r.bytes; i += scratch_.size()) {
        const std::size_t n = std::min(scratch_.size(), r.bytes - i);
        sum += p.source->read(*p.tensor, r.first + i, scratch_.data(), n);
        if (r.twin != nullptr) storage_.backends().states->copy_now(r.twin + i, scratch_.data(), n);
        r.backend->copy_now(r.memory + i, scratch_.data(), n);
    }
    return sum;
}

void Loading::finish(const Ranks& ranks) {
    ranks.all_or_none([&] {
        for (const Part& p : parts_) again_[p.range.tensor] += take(p);
        const auto changed = std::ranges::mismatch(again_, sums_).in1 - again_.begin();
        if (const auto t = static_cast<std::size_t>(changed); t < sums_.size())
            fail(tuttiInvalidUsage,
                 "tuttiDpLoad: '%s' in '%s/%s' was changed while it was loaded: create a new layer, and load again",
                 catalogue_.tensors()[t].name.c_str(), path_.c_str(), where_of(manifest_, catalogue_, t).file.c_str());
    });
    for (std::size_t b = 0; b < residuals_.size(); ++b) {
        if (kept_.residuals[b] != nullptr) *kept_.residuals[b] = std::move(residuals_[b]);
        if (kept_.factors[b] != nullptr) *kept_.factors[b] = std::move(factors_[b]);
    }
}

}  // namespace tutti::dp
