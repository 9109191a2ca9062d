#include "schedule/json.hpp"

#include <algorithm>
#include <charconv>
#include <climits>
#include <initializer_list>
#include <map>
#include <tuple>

#include "base/json_tree.hpp"
#include "base/result.hpp"
#include "schedule/text.hpp"

namespace tutti {
namespace {

constexpr const char* format = "tutti-programs";
constexpr int version = 1;

bool of_two_ranks(Collective c) {
    return c == Collective::send || c == Collective::recv;
}

std::string listed(std::initializer_list<std::string_view> words) {
    std::string s;
    for (const std::string_view word : words) s.append(s.empty() ? "" : ", ").append(word);
    return s;
}

std::string title(const ProgramSet& set) {
    std::string s = text("%s of %d rank%s", name_of(set.collective).data(), set.ranks, set.ranks == 1 ? "" : "s");
    return has_root(set.collective) ? s + text(", root %d", set.root) : s;
}

// ------------------------------------------------------------------------------------------------------------ operands

struct Word {
    std::string_view name;
    Place place;
    bool more;
};
constexpr Word source_words[] = {{"input", Place::input, false},
                                 {"output", Place::output, false},
                                 {"scratch", Place::scratch, false},
                                 {"recv", Place::peer, false},
                                 {"recv_part", Place::peer, true}};
constexpr Word sink_words[] = {{"output", Place::output, false},
                               {"scratch", Place::scratch, false},
                               {"send", Place::peer, false},
                               {"send_part", Place::peer, true}};

std::span<const Word> words_of(bool source) {
    return source ? std::span<const Word>(source_words) : std::span<const Word>(sink_words);
}

std::string operand_text(Operand o, bool source) {
    for (const Word& w : words_of(source))
        if (w.place == o.place && w.more == o.more) return std::string(w.name) + " " + std::to_string(o.index);
    fail(tuttiInvalidArgument, "%s has no name in JSON", text_of(o, source).c_str());
}

// ------------------------------------------------------------------------------------------------------------- writing

std::string side_text(std::span<const Operand> operands, bool source) {
    std::string s = "[";
    for (const Operand o : operands) s += (s.size() > 1 ? ", \"" : "\"") + operand_text(o, source) + "\"";
    return s + "]";
}

std::string step_text(const Program& p, const Step& s) {
    Program plain = program_for({p.collective, p.rank, p.ranks, p.root}, p.columns);
    plain.step(p.sources(s), p.sinks(s));
    std::string json = "{\"from\": " + side_text(p.sources(s), true) + ", \"to\": " + side_text(p.sinks(s), false);
    if (s.completes) json += ", \"completes\": true";
    if (s.column != plain.steps[0].column) json += text(", \"column\": %u", static_cast<unsigned>(s.column));
    return json + "}";
}

std::string program_text(const Program& p) {
    std::string s = text("      {\"rank\": %d, ", p.rank);
    if (p.scratch_chunks > 0) s += text("\"scratch\": %d, ", p.scratch_chunks);
    s += "\"steps\": [";
    for (std::size_t i = 0; i < p.steps.size(); ++i)
        s += (i > 0 ? ",\n        " : "\n        ") + step_text(p, p.steps[i]);
    return s + "\n      ]}";
}

std::string set_text(const ProgramSet& set) {
    if (of_two_ranks(set.collective))
        fail(tuttiInvalidArgument, "%s concerns two ranks only: files hold programs of all ranks",
             name_of(set.collective).data());
    const Program& first = set.programs.front();
    std::string s = text("    {\"collective\": \"%s\", \"ranks\": %d", name_of(set.collective).data(), set.ranks);
    if (has_root(set.collective)) s += text(", \"root\": %d", set.root);
    if (first.columns != 1) s += text(", \"columns\": %d", first.columns);
    if (first.message_chunks != 1) s += text(", \"message_chunks\": %d", first.message_chunks);
    s += ", \"programs\": [\n";
    for (const Program& p : set.programs) s += (p.rank > 0 ? ",\n" : "") + program_text(p);
    return s + "\n    ]}";
}

// ------------------------------------------------------------------------------------------------------------- reading

class Reader {
  public:
    explicit Reader(const std::string& path) : path_(path) {}
    ProgramFile read(std::string_view json);

  private:
    using Kind = Json::Kind;
    using Names = std::initializer_list<std::string_view>;

    [[noreturn]] void wrong(const Json& at, const std::string& reason) const {
        fail_at(path_, at.line, where_ + reason);
    }

    /// Checks that `object` is an object with all fields of `needed`, and no fields beyond both lists.
    void check_fields(const Json& object, const char* what, Names needed, Names optional = {}) const;
    int whole(const Json& object, std::string_view name, int low, int high, int otherwise) const;
    int whole(const Json& object, std::string_view name, int low, int high) const {
        return whole(object, name, low, high, low);  // an optional field is `low` by default
    }
    const std::string& words(const Json& object, std::string_view name) const;
    const std::vector<Json>& array(const Json& object, std::string_view name) const;

    void header(const Json& root, ProgramFile& file) const;
    Collective collective(const Json& set) const;
    ProgramSet set(const Json& json);
    void program(const Json& json, ProgramSet& set, int columns, int message_chunks);
    void step(const Json& json, Program& program) const;
    std::vector<Operand> operands(const Json& step, bool source) const;
    Operand operand(const Json& json, bool source) const;

    const std::string& path_;
    std::string where_;  // "rank 1, step 3: " while steps are read, else empty
};

void Reader::check_fields(const Json& object, const char* what, Names needed, Names optional) const {
    if (object.kind != Kind::object) wrong(object, text("%s was expected: { with the fields ", what) + listed(needed));
    for (const std::string& key : object.keys)
        if (std::ranges::find(needed, key) == needed.end() && std::ranges::find(optional, key) == optional.end())
            wrong(*object.find(key), text("%s has no field '%s'; it has ", what, excerpt(key).c_str()) +
                                         listed(needed) + (optional.size() > 0 ? ", " + listed(optional) : ""));
    for (const std::string_view name : needed)
        if (object.find(name) == nullptr) wrong(object, text("%s lacks its field '%s'", what, name.data()));
}

int Reader::whole(const Json& object, std::string_view name, int low, int high, int otherwise) const {
    const Json* value = object.find(name);
    if (value == nullptr) return otherwise;
    if (value->kind != Kind::whole || value->number < low || value->number > high)
        wrong(*value, text("'%s': a whole number from %d to %d was expected", name.data(), low, high));
    return static_cast<int>(value->number);
}

const std::string& Reader::words(const Json& object, std::string_view name) const {
    const Json& value = *object.find(name);
    if (value.kind != Kind::text) wrong(value, text("'%s': a text in quotes was expected", name.data()));
    return value.text;
}

const std::vector<Json>& Reader::array(const Json& object, std::string_view name) const {
    const Json& value = *object.find(name);
    if (value.kind != Kind::array) wrong(value, text("'%s': a list in [] was expected", name.data()));
    return value.items;
}

void Reader::header(const Json& root, ProgramFile& file) const {
    // Checked before the fields, because another version may have other fields.
    if (const Json* own = root.find("format"); own != nullptr && (own->kind != Kind::text || own->text != format))
        wrong(*own, text("'format': \"%s\" was expected", format));
    if (const Json* its = root.find("version"); its != nullptr && (its->kind != Kind::whole || its->number != version))
        wrong(*its, text("'version': this library knows version %d only", version));
    check_fields(root, "the file", {"format", "version", "name", "sets"}, {"summary"});
    file.name = words(root, "name");
    file.name_line = root.find("name")->line;
    if (!is_program_name(file.name)) wrong(*root.find("name"), std::string("'name': ") + program_name_rule);
    if (root.find("summary") != nullptr) file.summary = words(root, "summary");
}

ProgramFile Reader::read(std::string_view json) {
    const Json root = parse_json(json, path_);
    ProgramFile file;
    file.path = path_;
    header(root, file);
    std::map<std::tuple<Collective, int, Rank>, int> lines;
    for (const Json& item : array(root, "sets")) {
        ProgramSet next = set(item);
        if (const auto [first, is_new] = lines.try_emplace({next.collective, next.ranks, next.root}, next.line);
            !is_new)
            wrong(item, title(next) + text(": is here for the second time; the first is on line %d", first->second));
        file.sets.push_back(std::move(next));
    }
    return file;
}

Collective Reader::collective(const Json& set) const {
    const std::string& name = words(set, "collective");
    std::string known;
    for (int i = 0; i < collectives; ++i) {
        const auto c = static_cast<Collective>(i);
        if (of_two_ranks(c)) continue;
        if (name_of(c) == name) return c;
        known.append(known.empty() ? "" : ", ").append(name_of(c));
    }
    wrong(*set.find("collective"), text("'collective': '%s' is none of ", excerpt(name).c_str()) + known);
}

ProgramSet Reader::set(const Json& json) {
    check_fields(json, "a set", {"collective", "ranks", "programs"}, {"root", "columns", "message_chunks"});
    ProgramSet result;
    result.line = json.line;
    result.collective = collective(json);
    result.ranks = whole(json, "ranks", 1, INT_MAX);
    const bool rooted = has_root(result.collective);
    if (rooted != (json.find("root") != nullptr))
        wrong(json, text(rooted ? "%s needs its 'root'" : "%s has no 'root'", name_of(result.collective).data()));
    result.root = whole(json, "root", 0, result.ranks - 1);
    const int columns = whole(json, "columns", 1, INT_MAX);
    const int message_chunks = whole(json, "message_chunks", 1, INT_MAX);
    const std::vector<Json>& programs = array(json, "programs");
    if (programs.size() != static_cast<std::size_t>(result.ranks))
        wrong(*json.find("programs"),
              text("there are %zu programs, but %d ranks: one for each was expected", programs.size(), result.ranks));
    for (const Json& item : programs) program(item, result, columns, message_chunks);
    return result;
}

void Reader::program(const Json& json, ProgramSet& set, int columns, int message_chunks) {
    check_fields(json, "a program", {"rank", "steps"}, {"scratch"});
    const auto rank = static_cast<Rank>(set.programs.size());
    if (whole(json, "rank", 0, INT_MAX) != rank)
        wrong(*json.find("rank"), text("'rank': %d was expected, ranks come in order", rank));
    Program p = program_for({set.collective, rank, set.ranks, set.root}, columns);
    p.message_chunks = message_chunks;
    p.scratch_chunks = whole(json, "scratch", 0, INT_MAX);
    std::vector<int> lines;
    for (const Json& item : array(json, "steps")) {
        where_ = text("rank %d, step %zu: ", rank, p.steps.size());
        step(item, p);
        lines.push_back(item.line);
    }
    where_.clear();
    set.program_lines.push_back(json.line);
    set.step_lines.push_back(std::move(lines));
    set.programs.push_back(std::move(p));
}

void Reader::step(const Json& json, Program& program) const {
    check_fields(json, "a step", {"from", "to"}, {"completes", "column"});
    const Json* completes = json.find("completes");
    if (completes != nullptr && completes->kind != Kind::boolean)
        wrong(*completes, "'completes': true or false was expected");
    const std::vector<Operand> sources = operands(json, true), sinks = operands(json, false);
    program.step(sources, sinks, completes != nullptr && completes->flag, whole(json, "column", 0, INT_MAX, -1));
}

std::vector<Operand> Reader::operands(const Json& step, bool source) const {
    std::vector<Operand> list;
    for (const Json& item : array(step, source ? "from" : "to")) list.push_back(operand(item, source));
    return list;
}

Operand Reader::operand(const Json& json, bool source) const {
    const std::string_view all = json.text, name = all.substr(0, all.find(' '));
    for (const Word& w : words_of(source)) {
        if (json.kind != Kind::text || w.name != name) continue;
        int index = -1;
        const char* const end = all.data() + all.size();
        const char* const number = std::min(end, all.data() + name.size() + 1);
        if (const auto [stop, error] = std::from_chars(number, end, index);
            error != std::errc() || stop != end || index < 0)
            wrong(json, text("'%s': %s and %s's number were expected, as in \"%s 0\"", excerpt(all).c_str(),
                             w.name.data(), w.place == Place::peer ? "a rank" : "a chunk", w.name.data()));
        return {w.place, w.more, false, index};
    }
    std::string known;
    for (const Word& w : words_of(source)) known.append(known.empty() ? "" : ", ").append(w.name);
    wrong(json, (json.kind == Kind::text ? "'" + excerpt(all) + "' is no " : std::string("this is no ")) +
                    (source ? "source" : "sink") + ": a text was expected that begins with one of " + known);
}

/// The line of the step or program that an error of the verifier names, or of the set.
int line_of(const ProgramSet& set, const std::string& error) {
    const Named named = named_in(error);
    const auto rank = static_cast<std::size_t>(named.rank), step = static_cast<std::size_t>(named.step);
    if (named.rank < 0 || rank >= set.program_lines.size()) return set.line;
    return named.step < 0 || step >= set.step_lines[rank].size() ? set.program_lines[rank] : set.step_lines[rank][step];
}

}  // namespace

bool is_program_name(std::string_view name) {
    const auto plain = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
    };
    return !name.empty() && name.size() <= 64 && std::ranges::all_of(name, plain);
}

std::string json_of(const ProgramFile& file) {
    std::string s = text("{\n  \"format\": \"%s\",\n  \"version\": %d,\n  \"name\": ", format, version) +
                    escaped(file.name) + ",\n  \"summary\": " + escaped(file.summary) + ",\n  \"sets\": [";
    for (const ProgramSet& set : file.sets) s += (&set != file.sets.data() ? ",\n" : "\n") + set_text(set);
    return s + "\n  ]\n}\n";
}

ProgramFile programs_from(std::string_view json, const std::string& path) {
    return Reader(path).read(json);
}

Report proven(const ProgramFile& file, const ProgramSet& set, int slots) {
    Report report = verify(set.programs);
    std::string error = report.error;
    if (error.empty())
        if (error = different_order(set.programs, report); !error.empty())
            error = "ranks would get different bits: " + error;
    if (error.empty() && report.fifo_depth > slots)
        error = text(
            "needs %d slots on a connection to come to an end, and there are %d: let ranks receive before they send "
            "more",
            report.fifo_depth, slots);
    if (!error.empty()) fail_at(file.path, line_of(set, error), title(set) + ": " + error);
    return report;
}

}  // namespace tutti
