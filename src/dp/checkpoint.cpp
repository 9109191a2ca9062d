#include "dp/checkpoint.hpp"

#include <algorithm>

#include "base/files.hpp"

namespace tutti::dp {
namespace {

constexpr std::size_t for_gpus = std::size_t{8} << 20;  // bytes of a file that are copied to a GPU at once

/// Prefixes of the states' names, as PyTorch calls them.
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

/// The name of what a rank's compression had kept of a parameter.
std::string residual_name(int rank, const Parameter& p) {
    return "residual." + std::to_string(rank) + "." + p.name;
}

/// The tensor of a bucket's factor, which is the same on all ranks. Buckets of another layout have other names, and
/// begin anew.
Tensor factor_of(std::size_t bucket, std::size_t elements, std::size_t count) {
    return {text("factor.%zu.%zu", bucket, elements), DataType::float32, {count}, count, 0};
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
            // These are ignored by a layer without compression.
            if (!model && (name.starts_with("residual.") || name.starts_with("factor."))) continue;
            const auto known = std::ranges::find(catalogue.tensors(), name, &Tensor::name);
            if (known == catalogue.tensors().end()) refuse(false, model, name);
        }
    }
}

/// The residuals that this rank loads, by bucket; empty where there are none.
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

/// The factors, by bucket, the same on all ranks; empty where there is none.
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

Loading::Loading(const std::string& path, const Ranks& ranks, Storage& storage, const Kept& kept)
    : path_(path), storage_(storage), kept_(kept), catalogue_(storage) {
    std::vector<std::uint64_t> sums(catalogue_.tensors().size());
    ranks.all_or_none([&] {
        if (!file_exists(index_path(path)))
            fail(tuttiInvalidUsage,
                 "tuttiDpLoad: '%s' is no checkpoint: there is no %s in it (before it had that name, a checkpoint was "
                 "a text file and parts beside it, which this version does not read)",
                 path.c_str(), index_name);
        manifest_ = manifest_from(read_file(index_path(path)), index_path(path));
        compare(path, manifest_, catalogue_);
        parts_ = parts_of(catalogue_.ranges(ranks, false));
        scratch_.resize(storage.backends().on_gpu ? for_gpus : summed_once);
        for (const Part& p : ranks.on_one_host() ? share_of_all(ranks) : parts_)
            sums[p.range.tensor] += p.source->sum(*p.tensor, p.range.first, p.range.bytes, scratch_);
        residuals_ = read_residuals(path, manifest_, sources_, ranks, storage, kept.residuals);
        factors_ = read_factors(path, manifest_, sources_, storage, kept.factors);
    });
    const std::size_t torn = first_wrong(ranks, sums, ranks.on_one_host());
    ranks.all_or_none([&] {
        if (torn < sums.size())
            refuse_changed(path, where_of(manifest_, catalogue_, torn), catalogue_.tensors()[torn].name);
    });
}

/// Compares sums with the manifest. Returns the first tensor whose sum is wrong; the number of tensors if none is.
/// mine: by tensor, the sum of the parts that this rank has read. once: each byte was read by one rank; otherwise by
/// all ranks that load it. Collective.
std::size_t Loading::first_wrong(const Ranks& ranks, const std::vector<std::uint64_t>& mine, bool once) const {
    std::vector<std::uint64_t> sums = mine;
    const bool replicated = storage_.options().replicated();
    if (once || !replicated) ranks.sum(sums);
    const auto copies = static_cast<std::uint64_t>(ranks.shards().copies);
    for (std::size_t t = 0; t < sums.size(); ++t) {
        const std::uint64_t wanted = where_of(manifest_, catalogue_, t).sum;
        const bool alone = !once && catalogue_.is_everybodys(t);
        if (alone ? mine[t] != wanted : sums[t] != wanted * (once ? 1 : copies)) return t;
    }
    return sums.size();
}

/// What this rank checks if all ranks are on one host: an equal share of all files, in stretches as long as possible,
/// which the system reads faster than many short ones. Afterwards all files are in the host's page cache.
std::vector<Loading::Part> Loading::share_of_all(const Ranks& ranks) {
    std::vector<Range> all;
    std::uint64_t bytes = 0;
    for (std::size_t t = 0; t < catalogue_.tensors().size(); ++t) {
        all.push_back({t, 0, catalogue_.tensors()[t].bytes(), nullptr, nullptr});
        bytes += all.back().bytes;
    }
    const auto n = static_cast<std::uint64_t>(ranks.size()), mine = static_cast<std::uint64_t>(ranks.rank());
    const std::uint64_t begin = bytes / n * mine, end = mine + 1 == n ? bytes : bytes / n * (mine + 1);
    std::vector<Part> share;
    std::uint64_t at = 0;  // offset in all files together
    for (const Part& p : parts_of(all)) {
        const std::uint64_t from = std::clamp(begin, at, at + p.range.bytes) - at;
        const std::uint64_t to = std::clamp(end, at, at + p.range.bytes) - at;
        at += p.range.bytes;
        if (from < to) share.push_back({{p.range.tensor, from, to - from, nullptr, nullptr}, p.source, p.tensor});
    }
    return share;
}

/// The parts of the files that have these ranges, in the order of files and offsets, so that the system reads ahead.
std::vector<Loading::Part> Loading::parts_of(const std::vector<Range>& ranges) {
    std::vector<Part> parts;
    for (const Range& r : ranges) {
        const Source& source = source_of(sources_, path_, where_of(manifest_, catalogue_, r.tensor));
        parts.push_back({r, &source, &source.find(catalogue_.tensors()[r.tensor])});
    }
    std::ranges::sort(parts, {}, [](const Part& p) {
        return std::pair<const std::string&, std::uint64_t>(p.source->path, p.tensor->at + p.range.first);
    });
    return parts;
}

/// Reads a part into the layer's memory, on ranks on GPUs by way of scratch_. Returns its sum.
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
    std::vector<std::uint64_t> sums(catalogue_.tensors().size());
    ranks.all_or_none([&] {
        for (const Part& p : parts_) sums[p.range.tensor] += take(p);
    });
    const std::size_t changed = first_wrong(ranks, sums, false);
    ranks.all_or_none([&] {
        if (changed < sums.size())
            fail(tuttiInvalidUsage,
                 "tuttiDpLoad: '%s' in '%s/%s' was changed while it was loaded: create a new layer, and load again",
                 catalogue_.tensors()[changed].name.c_str(), path_.c_str(),
                 where_of(manifest_, catalogue_, changed).file.c_str());
    });
    for (std::size_t b = 0; b < residuals_.size(); ++b) {
        if (kept_.residuals[b] != nullptr) *kept_.residuals[b] = std::move(residuals_[b]);
        if (kept_.factors[b] != nullptr) *kept_.factors[b] = std::move(factors_[b]);
    }
}

}  // namespace tutti::dp
