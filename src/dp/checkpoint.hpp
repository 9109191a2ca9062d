// Saves and loads what ranks own of the parameters. `path` is a folder, which all ranks see: safetensors files with the
// whole parameters, others with the states of the optimizer, and an index (saved.hpp) that names them. Ranks write
// their pieces into the same files, each where it belongs, and read from them what they need. Files of another save
// have other names, and the index takes the old one's place when all are on the disk: that moment is the save.
#pragma once

#include <memory>

#include "base/thread.hpp"
#include "dp/ranks.hpp"
#include "dp/safetensors.hpp"
#include "dp/saved.hpp"
#include "dp/sources.hpp"
#include "dp/storage.hpp"

namespace tutti::dp {

/// By bucket: what compression has kept for the next step; nullptr or empty: nothing.
struct Kept {
    std::vector<std::vector<float>*> residuals;  // this rank's own
    std::vector<std::vector<float>*> factors;    // the same on all ranks
};

/// Part of a tensor that a rank has in its memory.
struct Range {
    std::size_t tensor;
    std::uint64_t first;  // bytes from the start of the tensor
    std::size_t bytes;
    std::byte* memory;
    Backend* backend;           // of the memory
    std::byte* twin = nullptr;  // the same on the host, with config.offload
};

/// The tensors of a layer's checkpoint, and in which file each is; the same on all ranks.
class Catalogue {
  public:
    /// Without what compression has kept; storage outlives this.
    explicit Catalogue(const Storage& storage);
    /// With it, as each of so many ranks has. kept outlives this.
    Catalogue(const Storage& storage, const Kept& kept, int ranks);
    const std::vector<Tensor>& tensors() const { return tensors_; }
    bool is_models(std::size_t tensor) const { return tensor < models_; }
    /// All ranks have all of it, and load it.
    bool is_everybodys(std::size_t tensor) const {
        return storage_.options().replicated() || (is_models(tensor) && !storage_.parameters()[tensor].is_trained());
    }
    /// What this rank saves, or loads: what it owns; of what all ranks have, each saves a part, and loads all.
    std::vector<Range> ranges(const Ranks& ranks, bool saves) const;

  private:
    const Storage& storage_;
    std::vector<Tensor> tensors_;
    std::size_t models_ = 0;
    std::vector<std::size_t> first_state_;  // by parameter: its first tensor that is the optimizer's
    const Kept* from_ = nullptr;            // nullptr: nothing is saved of what was kept
    std::vector<std::size_t> kept_;         // parameters of which something was kept
    std::size_t first_kept_ = 0;            // rank 0's tensors of them; then rank 1's, and so on
    std::vector<std::size_t> factors_;      // buckets that have one, which rank 0 saves
    std::size_t first_factor_ = 0;          // their tensors
    BackendPtr host_;
};

/// Memory for copies of what is saved. Its first use takes longer than the copy, so it is kept from save to save.
struct Staging {
    std::unique_ptr<std::byte[]> memory;
    std::size_t bytes = 0;
};

/// A save on its way.
class Saving {
  public:
    /// Collective, while no job is under way. m: all but the number, the bytes and the tensors. The old checkpoint
    /// holds until finish(). beside: returns when all has been copied there, which is enlarged if it has to be, and
    /// outlives this; nullptr: when this rank has written its part. If a file can't be made, all ranks throw
    /// tuttiInvalidUsage.
    Saving(const std::string& path, const Ranks& ranks, const Storage& storage, const Kept& kept, Manifest m,
           Staging* beside);
    /// Gives up what was not finished.
    ~Saving();
    Saving(const Saving&) = delete;
    /// Collective: the new checkpoint takes the old one's place. If something could not be written, all ranks throw
    /// tuttiInvalidUsage, and the old one holds.
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
    std::vector<std::uint64_t> sums_;   // by tensor: of what this rank has written
    std::vector<File> files_;
    std::vector<std::string> made_;  // files that this rank has made
    Staging own_;         // where a rank on a GPU copies to while it waits
    Verdict result_;      // of the writing
    bool named_ = false;  // for all that this rank knows, the index names its files
    Thread thread_;       // the last: it ends first
};

/// A load. Files are read twice, the second time as a rule from the system's cache, so that what is wrong with them is
/// known before anything changes, and no memory is needed beside the layer's.
class Loading {
  public:
    /// Collective, while no job is under way. Each rank checks what it needs. If something is not right, all ranks
    /// throw tuttiInvalidUsage. storage and kept outlive this.
    Loading(const std::string& path, const Ranks& ranks, Storage& storage, const Kept& kept);
    const Manifest& manifest() const { return manifest_; }
    /// Collective: sets the values and states that this rank owns, and what compression keeps: where other ranks have
    /// saved, everybody has the mean of what they had kept. Throws on all ranks if a file can't be read again, or
    /// (tuttiInvalidUsage) is another than it was: then values and states are parts of this and that.
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
    std::vector<Part> parts_;  // of what this rank loads, in the order in which they lie in the files
    std::vector<std::byte> scratch_;
    std::vector<std::vector<float>> residuals_, factors_;  // by bucket
};

}  // namespace tutti::dp
