// Saves and loads what ranks own of the parameters. `path` is a folder that all ranks see. It has safetensors files
// with whole parameters, others with the optimizer's states, and an index (saved.hpp) that names them. Ranks write
// their pieces into the same files, each at its place, and read from them what they need. Every save uses new file
// names. It takes effect when the index replaces the old one, which happens when all files are on the disk.
#pragma once

#include <memory>

#include "base/thread.hpp"
#include "dp/ranks.hpp"
#include "dp/safetensors.hpp"
#include "dp/saved.hpp"
#include "dp/sources.hpp"
#include "dp/storage.hpp"

namespace tutti::dp {

/// By bucket: what compression has kept for the next step; nullptr or empty if nothing.
struct Kept {
    std::vector<std::vector<float>*> residuals;  // this rank's own
    std::vector<std::vector<float>*> factors;    // the same on all ranks
};

/// A part of a tensor, and where it is in this rank's memory.
struct Range {
    std::size_t tensor;
    std::uint64_t first;  // bytes from the start of the tensor
    std::size_t bytes;
    std::byte* memory;
    Backend* backend;           // of the memory
    std::byte* twin = nullptr;  // with config.offload: the host's copy of the values
};

/// The tensors of a layer's checkpoint, the same on all ranks, and this rank's ranges of them.
class Catalogue {
  public:
    /// Without what compression has kept. storage must outlive this.
    explicit Catalogue(const Storage& storage);
    /// With what compression has kept on each of `ranks` ranks. storage and kept must outlive this.
    Catalogue(const Storage& storage, const Kept& kept, int ranks);
    const std::vector<Tensor>& tensors() const { return tensors_; }
    bool is_models(std::size_t tensor) const { return tensor < models_; }
    /// Whether every rank has, and loads, the whole tensor.
    bool is_everybodys(std::size_t tensor) const {
        return storage_.options().replicated() || (is_models(tensor) && !storage_.parameters()[tensor].is_trained());
    }
    /// The ranges that this rank saves, or loads: those that it owns. What several ranks have, each of them saves a
    /// part of, and loads all of.
    std::vector<Range> ranges(const Ranks& ranks, bool saves) const;

  private:
    const Storage& storage_;
    std::vector<Tensor> tensors_;           // parameters; then states, residuals, factors
    std::size_t models_ = 0;                // how many are parameters
    std::vector<std::size_t> first_state_;  // by parameter: the first tensor of its master and states
    const Kept* from_ = nullptr;            // what compression has kept; nullptr if that is not saved
    std::vector<std::size_t> kept_;         // parameters with a residual
    std::size_t first_kept_ = 0;            // first tensor of the residuals: rank 0's, then rank 1's, and so on
    std::vector<std::size_t> factors_;      // buckets with a factor, which rank 0 saves
    std::size_t first_factor_ = 0;          // first tensor of the factors
    BackendPtr host_;                       // of residuals and factors
};

/// Memory for copies of what is saved. Kept from save to save, because the first use of new memory takes longer than
/// the copy.
struct Staging {
    std::unique_ptr<std::byte[]> memory;
    std::size_t bytes = 0;
};

/// A save in progress. Owned by Saves or an OnArrival. Used by the caller's thread; thread_ writes the files.
class Saving {
  public:
    /// Begins a save. Collective, while no job is under way. m: the manifest, except the number, the bytes and the
    /// tensors. beside: memory to copy this rank's part to, which is enlarged if needed and must outlive this; returns
    /// when that has been copied. nullptr: on a CPU, returns when this rank's part has been written. The old checkpoint
    /// stays valid until finish(). If a file can't be made, all ranks throw tuttiInvalidUsage.
    Saving(const std::string& path, const Ranks& ranks, const Storage& storage, const Kept& kept, Manifest m,
           Staging* beside);
    /// Removes this rank's files if the save was not finished.
    ~Saving();
    Saving(const Saving&) = delete;
    /// Waits until the files are written, and replaces the old checkpoint. Collective. If something could not be
    /// written, all ranks throw tuttiInvalidUsage, and the old one stays.
    void finish(const Ranks& ranks);
    const std::string& path() const { return path_; }

  private:
    struct File {
        std::string name;
        std::vector<std::size_t> tensors;
        int fd = -1;
    };
    void deal_out(const Catalogue& catalogue, std::size_t files);
    void make_files(const Ranks& ranks);
    void write(const Range& range, const std::byte* data);
    void write_all(const std::vector<Range>& ranges);
    static void stage(std::vector<Range>& ranges, Staging& staging);
    void remove_others() const;

    const std::string path_;
    Manifest manifest_;
    std::vector<Tensor> tensors_;
    std::size_t models_ = 0;
    std::vector<std::size_t> file_of_;  // by tensor
    std::vector<std::uint64_t> sums_;   // by tensor: the sum of what this rank has written
    std::vector<File> files_;
    std::vector<std::string> made_;  // files that this rank has made
    Staging own_;                    // the copy of a rank on a GPU that saves without `beside`
    Verdict result_;                 // of the writing
    bool named_ = false;             // the index names the files, or may do so
    Thread thread_;                  // declared last, so that it ends before the rest is destroyed
};

/// A load. Files are read twice, the second time normally from the page cache. So errors in them are found before
/// anything changes, and no memory is needed besides the layer's. One thread at a time.
class Loading {
  public:
    /// Reads and checks the files. Collective, while no job is under way. If something is wrong, all ranks throw
    /// tuttiInvalidUsage. storage and kept must outlive this.
    Loading(const std::string& path, const Ranks& ranks, Storage& storage, const Kept& kept);
    const Manifest& manifest() const { return manifest_; }
    /// Sets the values and states that this rank owns, and what compression keeps; if another number of ranks has
    /// saved, every rank gets the mean of what those had kept. Collective. Throws on all ranks if a file can't be read
    /// again, or has changed since (tuttiInvalidUsage). The layer then has a mixture of old and new values and states.
    void finish(const Ranks& ranks);

  private:
    struct Part {
        Range range;
        const Source* source;
        const Tensor* tensor;  // in the file
    };
    std::vector<Part> parts_of(const std::vector<Range>& ranges);
    std::vector<Part> share_of_all(const Ranks& ranks);
    std::size_t first_wrong(const Ranks& ranks, const std::vector<std::uint64_t>& mine, bool once) const;
    std::uint64_t take(const Part& part);

    const std::string path_;
    Storage& storage_;
    const Kept& kept_;
    const Catalogue catalogue_;
    Manifest manifest_;
    Sources sources_;
    std::vector<Part> parts_;  // what this rank loads, in the order in which it lies in the files
    std::vector<std::byte> scratch_;
    std::vector<std::vector<float>> residuals_, factors_;  // by bucket
};

}  // namespace tutti::dp
