#include <algorithm>

#include "base/result.hpp"
#include "topology/topology.hpp"

namespace tutti {
namespace {

std::string size_text(std::size_t bytes) {
    if (bytes >= std::size_t{1} << 30) return text(" %.1f GiB", static_cast<double>(bytes) / (1 << 30));
    if (bytes >= std::size_t{1} << 20) return text(" %zu MiB", bytes >> 20);
    return text(" %zu KiB", bytes >> 10);
}

std::string label_of(const Part& part) {
    std::string label = part.name;
    if (part.number >= 0) label += text(" %d", part.number);
    if (part.bytes > 0) label += size_text(part.bytes);
    return label;
}

/// True if both subtrees are equal except for numbers. Never true for devices.
bool alike(const Part& a, const Part& b) {
    return a.kind == b.kind && a.bytes == b.bytes && a.parts.size() == b.parts.size() && a.kind != Part::Kind::gpu &&
           a.kind != Part::Kind::network && a.kind != Part::Kind::pci &&
           std::equal(a.parts.begin(), a.parts.end(), b.parts.begin(), alike);
}

bool is_small(const Part& part) {
    return part.kind == Part::Kind::core || part.kind == Part::Kind::thread || part.kind == Part::Kind::cache;
}

void append(const Part& part, int depth, std::size_t times, std::string& out) {
    out.append(static_cast<std::size_t>(2 * depth), ' ');
    if (times > 1) out += text("%zu x ", times);
    out += label_of(part);
    if (times > 1 && part.number >= 0) out += " ...";
    out += '\n';
    for (std::size_t i = 0; i < part.parts.size();) {
        std::size_t same = 1;
        while (i + same < part.parts.size() && is_small(part.parts[i]) && alike(part.parts[i], part.parts[i + same]))
            ++same;
        append(part.parts[i], depth + 1, same, out);
        i += same;
    }
}

struct Box {
    int width, height;
};

constexpr int pad = 6, line = 16, leaf_width = 76;

const char* fill_of(Part::Kind kind) {
    switch (kind) {
        case Part::Kind::package:
            return "#f4f1e8";
        case Part::Kind::numa:
            return "#dfe8f5";
        case Part::Kind::cache:
            return "#ffffff";
        case Part::Kind::core:
            return "#e6e6e6";
        case Part::Kind::gpu:
            return "#d8efd3";
        case Part::Kind::network:
            return "#f5dede";
        default:
            return "#fafafa";
    }
}

/// Escapes a label for SVG, because names come from files and drivers.
std::string escaped(const std::string& label) {
    std::string out;
    for (const char c : label)
        if (c == '<' || c == '>' || c == '&')
            out += text("&#%d;", c);
        else
            out += static_cast<unsigned char>(c) < ' ' ? '?' : c;
    return out;
}

/// Draws a part as a box, with its parts as boxes inside, in rows of limited width. Returns the box's size. out:
/// nullptr to compute the size only.
Box place(const Part& part, int x, int y, std::string* out) {
    int across = x + pad, down = y + pad + line, row_height = 0, width = 0;
    std::string inside;
    for (const Part& child : part.parts) {
        const Box box = place(child, 0, 0, nullptr);
        if (across > x + pad && across + box.width > x + 1100) {
            across = x + pad;
            down += row_height + pad;
            row_height = 0;
        }
        if (out != nullptr) place(child, across, down, &inside);
        across += box.width + pad;
        width = std::max(width, across - x);
        row_height = std::max(row_height, box.height);
    }
    const Box box{std::max(width, std::max(leaf_width, static_cast<int>(label_of(part).size()) * 7 + 2 * pad)),
                  down - y + row_height + (part.parts.empty() ? 0 : pad)};
    if (out != nullptr)
        *out += text(
                    "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"%s\" stroke=\"#888\"/>"
                    "<text x=\"%d\" y=\"%d\">%s</text>\n",
                    x, y, box.width, box.height, fill_of(part.kind), x + pad, y + pad + 8,
                    escaped(label_of(part)).c_str()) +
                inside;
    return box;
}

/// Appends the parts from `part` down to the hardware thread of that number. False, and nothing appended, if there is
/// none.
bool path_to(const Part& part, int core, std::vector<const Part*>& path) {
    path.push_back(&part);
    if (part.kind == Part::Kind::thread && part.number == core) return true;
    for (const Part& child : part.parts)
        if (path_to(child, core, path)) return true;
    path.pop_back();
    return false;
}

}  // namespace

std::string text_of(const Part& machine) {
    std::string out;
    append(machine, 0, 1, out);
    return out;
}

std::string svg_of(const Part& machine) {
    const Box box = place(machine, 10, 10, nullptr);
    std::string out = text(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
        "font-family=\"sans-serif\" font-size=\"11\">\n",
        box.width + 20, box.height + 20);
    place(machine, 10, 10, &out);
    return out + "</svg>\n";
}

int distance(const Part& machine, int core_a, int core_b) {
    std::vector<const Part*> a, b;
    if (!path_to(machine, core_a, a) || !path_to(machine, core_b, b)) return -1;
    std::size_t common = 0;
    while (common < a.size() && common < b.size() && a[common] == b[common]) ++common;
    return static_cast<int>(std::max(a.size(), b.size()) - common);
}

}  // namespace tutti
