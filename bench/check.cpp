// The check of a worker's results, and their distance from fp64.
#include <cmath>
#include <cstdio>

#include "worker.hpp"

namespace perf {

namespace {

/// The inputs of all ranks and their result, each made when it is first asked for.
class Patterns {
  public:
    Patterns(const DataKind& kind, std::size_t needed)
        : kind_(kind), needed_(needed), inputs_(static_cast<std::size_t>(kind.ranks)) {}

    const Pattern* of(int rank) {
        auto& pattern = rank == Piece::reduction ? result_ : inputs_[static_cast<std::size_t>(rank)];
        if (!pattern)
            pattern = rank == Piece::reduction ? result_pattern(kind_, needed_) : input_pattern(kind_, rank, needed_);
        return &*pattern;
    }

  private:
    DataKind kind_;
    std::size_t needed_;
    std::vector<std::optional<Pattern>> inputs_;
    std::optional<Pattern> result_;
};

/// What a rank's memory must look like, and what it does look like. All begin a guard before the buffer and end one
/// behind the message.
struct Images {
    Image send, receive;
    HostView sent, received;
};

}  // namespace

// Paints all members' buffers, runs one operation, and counts what is not as it must be afterwards, in the result,
// around it, and in the input, which nobody may have touched.
double Worker::wrong_elements(const Row& row, bool in_place) {
    const std::size_t size = size_of(row.type), guard = Buffer::guard / size;
    const std::size_t elements = row.bytes / size + 2 * guard;
    const DataKind kind{row.type, row.op, world_.ranks(), false, ++seed_};
    Patterns patterns(kind, row.shape.send);
    std::vector<Images> images;
    for (const Member& m : members_) {
        const auto seen = [&](const Buffer& b) {
            return HostView(b, start(b, row.type) - Buffer::guard, elements * size);
        };
        Images& image = images.emplace_back(
            Images{Image(row.type, elements), Image(row.type, elements), seen(m.send), seen(m.receive)});
        const std::size_t part = in_place ? row.shape.send_in_place * static_cast<std::size_t>(m.rank) : 0;
        if (collective_.sends(m.rank, row.root))
            (in_place ? image.receive : image.send).lay({guard + part, row.shape.send, patterns.of(m.rank), 0, 0});
        image.send.paint(image.sent.data());
        image.receive.paint(image.received.data());
        image.sent.push();
        image.received.push();
    }
    world_.barrier(thread_);  // copies to and from GPUs are over before kernels begin to wait for other threads
    issue(row, in_place, 0);
    complete();
    double wrong = 0;
    for (std::size_t i = 0; i < members_.size(); ++i) {
        const Member& m = members_[i];
        const std::size_t part = in_place ? row.shape.receive_in_place * static_cast<std::size_t>(m.rank) : 0;
        for (const Piece& piece : collective_.result(row.shape, m.rank, world_.ranks(), row.root))
            images[i].receive.lay({guard + part + piece.at, piece.count, patterns.of(piece.from), piece.first,
                                   piece.from == Piece::reduction ? tolerance(kind) : 0});
        std::string where;
        images[i].received.pull();
        std::size_t bad = images[i].receive.wrong(images[i].received.data(), where);
        if (bad == 0) {
            images[i].sent.pull();
            bad = images[i].send.wrong(images[i].sent.data(), where);
            if (bad > 0) where = "the send buffer was changed: " + where;
        }
        wrong += static_cast<double>(bad);
        if (bad > 0 && complaints_++ < 4)
            std::fprintf(stderr, "rank %d: %s %s %s, %zu bytes, %s: %s\n", m.rank, collective_.name, name_of(row.type),
                         name_of(row.op), row.bytes, in_place ? "in place" : "out of place", where.c_str());
    }
    return wrong;
}

double Worker::largest_error(const Row& row, bool in_place) {
    if (!collective_.reduces) return 0;
    const std::size_t size = size_of(row.type), needed = row.shape.send;
    const DataKind kind{row.type, row.op, world_.ranks(), true, ++seed_};
    const std::vector<double> exact = result_in_fp64(kind, needed);
    for (const Member& m : members_) {
        const Buffer& buffer = in_place ? m.receive : m.send;
        HostView view(buffer, start(buffer, row.type), row.bytes);
        input_pattern(kind, m.rank, needed).write(view.data(), 0, needed);
        view.push();
    }
    world_.barrier(thread_);
    issue(row, in_place, 0);
    complete();
    double largest = 0;
    for (const Member& m : members_) {
        const std::size_t part = in_place ? row.shape.receive_in_place * static_cast<std::size_t>(m.rank) : 0;
        HostView view(m.receive, start(m.receive, row.type), row.bytes);
        view.pull();
        if (&m == &members_.front()) {
            const std::byte* const result = view.data() + part * size;
            for (std::size_t i = 0; i < row.shape.receive * size; ++i)
                checksum_ = (checksum_ ^ static_cast<std::uint64_t>(result[i])) * 1099511628211u;
        }
        for (const Piece& piece : collective_.result(row.shape, m.rank, world_.ranks(), row.root))
            for (std::size_t i = 0; i < piece.count; ++i) {
                const std::byte* at = view.data() + (part + piece.at + i) * size;
                const double expected = exact[position_in_period(kind.seed, piece.first + i, needed)];
                largest = larger_error(largest, std::fabs(decode(row.type, load(at, size)) - expected));
            }
    }
    world_.barrier(thread_);
    return largest;
}

}  // namespace perf
