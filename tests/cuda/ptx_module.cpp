// PTX's text: sections 4 and 5 of its manual. Bodies are decoded when their kernel is first asked for.
#include <algorithm>
#include <bit>
#include <cctype>
#include <cstring>
#include <map>
#include <mutex>
#include <unordered_map>

#include "ptx_code.hpp"

namespace tutti::ptx {
namespace {

struct Text {
    std::string_view rest;
    unsigned line = 1;
};

[[noreturn]] void refuse(unsigned line, const std::string& what) {
    throw std::runtime_error("PTX, line " + std::to_string(line) + ": " + what);
}

/// Without comments, lines kept.
std::string without_comments(const std::string& text) {
    std::string out;
    out.reserve(text.size());
    for (std::size_t i = 0; i < text.size();) {
        const std::size_t slash = std::min(text.find('/', i), text.size());
        out.append(text, i, slash - i);
        i = slash;
        if (text.compare(i, 2, "//") == 0) {
            i = std::min(text.find('\n', i), text.size());
        } else if (text.compare(i, 2, "/*") == 0) {
            const std::size_t end = std::min(text.find("*/", i), text.size() - 2);
            out.append(static_cast<std::size_t>(std::count(text.begin() + static_cast<long>(i),
                                                           text.begin() + static_cast<long>(end), '\n')),
                       '\n');
            i = end + 2;
        } else if (i < text.size()) {
            out += text[i++];
        }
    }
    return out;
}

bool in_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '$' ||
           c == '%' || c == '.' || c == ':';
}

/// Words and single signs; words include the dots of opcodes and of directives.
struct Token {
    std::string_view text;
    unsigned line;
    bool is(std::string_view other) const { return text == other; }
};

std::vector<Token> tokens_of(std::string_view text) {
    std::vector<Token> found;
    unsigned line = 1;
    for (std::size_t i = 0; i < text.size();) {
        const char c = text[i];
        if (c == '\n') ++line;
        if (std::isspace(static_cast<unsigned char>(c))) {
            ++i;
        } else if (c == '"') {
            const std::size_t end = text.find('"', i + 1);
            if (end == std::string_view::npos) refuse(line, "a string that does not end");
            found.push_back({text.substr(i, end + 1 - i), line});
            i = end + 1;
        } else if (in_name(c) && c != ':') {
            std::size_t end = i;
            while (end < text.size() && in_name(text[end]) &&
                   (text[end] != ':' || (end + 1 < text.size() && text[end + 1] == ':') || text[end - 1] == ':'))
                ++end;
            found.push_back({text.substr(i, end - i), line});
            i = end;
        } else {
            found.push_back({text.substr(i, 1), line});
            ++i;
        }
    }
    return found;
}

std::size_t bytes_of(std::string_view type, unsigned line) {
    if (type == ".pred") return 1;
    std::size_t bits = 0;
    for (const char c : type)
        if (std::isdigit(static_cast<unsigned char>(c))) bits = 10 * bits + static_cast<std::size_t>(c - '0');
    if (type.size() < 3 || bits % 8 != 0 || bits == 0 || bits > 128) refuse(line, "no type: " + std::string(type));
    return bits / 8;
}

bool is_number(std::string_view word) {
    return !word.empty() && std::isdigit(static_cast<unsigned char>(word[0]));
}

std::uint64_t number_of(const Token& token) {
    std::string word(token.text);
    if (word.size() > 2 && word[0] == '0' && (word[1] == 'f' || word[1] == 'F' || word[1] == 'd' || word[1] == 'D')) {
        if (word.size() != (std::tolower(word[1]) == 'f' ? 10u : 18u)) refuse(token.line, "no number: " + word);
        return std::stoull(word.substr(2), nullptr, 16);
    }
    if (word.back() == 'U') word.pop_back();
    std::size_t used = 0;
    const std::uint64_t value = std::stoull(word, &used, 0);
    if (used != word.size()) refuse(token.line, "no number: " + word);
    return value;
}

std::size_t up(std::size_t value, std::size_t to) {
    return (value + to - 1) / to * to;
}

/// Tokens one after the other.
class Reader {
  public:
    Reader(const std::vector<Token>& tokens, std::size_t begin, std::size_t end)
        : tokens_(tokens), at_(begin), end_(end) {}
    bool done() const { return at_ >= end_; }
    const Token& peek() const {
        if (done()) refuse(tokens_.empty() ? 0 : tokens_.back().line, "the text ends too early");
        return tokens_[at_];
    }
    const Token& take() {
        const Token& token = peek();
        ++at_;
        return token;
    }
    bool take_if(std::string_view text) {
        if (done() || !tokens_[at_].is(text)) return false;
        ++at_;
        return true;
    }
    void expect(std::string_view text) {
        const Token& token = take();
        if (!token.is(text))
            refuse(token.line, "'" + std::string(text) + "' was expected, not '" + std::string(token.text) + "'");
    }
    std::size_t at() const { return at_; }
    void go(std::size_t at) { at_ = at; }
    const std::vector<Token>& tokens() const { return tokens_; }

  private:
    const std::vector<Token>& tokens_;
    std::size_t at_, end_;
};

/// ".align 8 .b8 name[16]" or ".b64 name": what is declared after the state space.
struct Declared {
    std::string name;
    std::size_t size = 0, alignment = 1, element = 1;
};
Declared declaration(Reader& in) {
    Declared d;
    if (in.take_if(".align")) d.alignment = number_of(in.take());
    while (in.peek().is(".ptr") || in.peek().is(".global")) in.take();
    if (in.take_if(".align")) d.alignment = number_of(in.take());
    const Token type = in.take();
    d.size = d.element = bytes_of(type.text, type.line);
    d.alignment = std::max(d.alignment, d.size);
    d.name = in.take().text;
    while (in.take_if("[")) {
        if (!in.peek().is("]"))
            d.size *= number_of(in.take());
        else
            d.size = 0;
        in.expect("]");
    }
    return d;
}

/// "(.param .b64 a, .param .b32 b)"; the reader stands behind the parenthesis.
std::vector<Declared> parameters(Reader& in) {
    std::vector<Declared> found;
    while (!in.take_if(")")) {
        in.expect(".param");
        found.push_back(declaration(in));
        in.take_if(",");
    }
    return found;
}

/// A function as its text says, before its body is decoded.
struct Outline {
    std::string name;
    bool entry = false;
    std::vector<Declared> results, parameters;
    unsigned most_threads = 0;
    std::size_t begin = 0, end = 0;  // of its body's tokens, braces left out
    bool has_body = false;
};

/// Of a module: in shared memory at an offset, or in memory of the host's for as long as the module lives.
struct Variables {
    std::map<std::string, std::size_t, std::less<>> symbols;
    std::size_t shared_bytes = 0;
    std::vector<std::pair<std::unique_ptr<std::byte[]>, std::size_t>> global;
};

using Outlines = std::map<std::string, Outline, std::less<>>;
using Functions = std::map<std::string, std::shared_ptr<const Function>, std::less<>>;

/// One body.
class Decoder {
  public:
    Decoder(const std::vector<Token>& tokens, const Outline& outline, const Outlines& outlines, Functions& known,
            const Variables& variables)
        : in_(tokens, outline.begin, outline.end), outlines_(outlines), known_(known), variables_(variables) {
        f_.name = outline.name;
        f_.entry = outline.entry;
        f_.most_threads = outline.most_threads;
        f_.shared_bytes = variables.shared_bytes;
        has_body_ = outline.has_body;
        for (const auto& [bytes, size] : variables.global) f_.globals.push_back({bytes.get(), bytes.get() + size});
        scopes_.emplace_back();
        for (const auto& [name, place] : variables.symbols) scopes_.back().symbols[name] = place;
        for (const Declared& d : outline.parameters) f_.parameters.push_back(own(d));
        for (const Declared& d : outline.results) f_.results.push_back(own(d));
        f_.own_bytes = up(f_.own_bytes, 16);
    }

    std::shared_ptr<const Function> decode() {
        while (!in_.done()) statement();
        if (!has_body_) trap();
        for (const auto& [at, label] : jumps_) {
            const auto found = labels_.find(label);
            if (found == labels_.end()) refuse(f_.code[at].line, "no label " + label);
            f_.code[at].number = static_cast<std::int64_t>(found->second);
        }
        finish_with_return();
        assign_registers(f_, used_);
        std::size_t deepest = 0;
        for (const Call& c : f_.calls) deepest = std::max(deepest, c.function->stack_bytes);
        f_.stack_bytes = up(8 * std::size_t{f_.registers}, 16) + (f_.entry ? 0 : f_.own_bytes) + up(f_.call_bytes, 16) +
                         up(f_.local_bytes, 16) + deepest;
        return std::make_shared<const Function>(std::move(f_));
    }

  private:
    struct Scope {
        std::unordered_map<std::string, std::int32_t> registers;
        std::unordered_map<std::string, std::size_t> symbols;  // their offsets
        std::unordered_map<std::string, Declared> passed;      // by symbol: parameters of calls
    };

    Parameter own(const Declared& d) {
        f_.own_bytes = up(f_.own_bytes, d.alignment);
        const Parameter p{f_.own_bytes, d.size};
        scopes_.back().symbols[d.name] = p.offset;
        f_.own_bytes += d.size;
        return p;
    }

    /// Of a function that is only declared, the driver's own vprintf, say: calls of it are faults.
    void trap() {
        Instruction i;
        i.run = form_of({"trap"}, 1).run;
        f_.code.push_back(i);
    }

    void finish_with_return() {
        Instruction i;
        i.run = do_return;
        f_.code.push_back(i);
    }

    void statement() {
        if (in_.take_if("{")) return void(scopes_.emplace_back());
        if (in_.take_if("}")) return scopes_.pop_back();
        if (in_.take_if(";")) return;
        const Token first = in_.peek();
        if (first.text[0] == '.') return directive();
        const std::size_t here = in_.at();
        in_.take();
        if (in_.take_if(":")) {
            labels_[std::string(first.text)] = f_.code.size();
            return;
        }
        in_.go(here);
        instruction();
    }

    void directive() {
        const Token kind = in_.take();
        if (kind.is(".reg")) return registers();
        if (kind.is(".local") || kind.is(".shared") || kind.is(".param")) {
            const Declared d = declaration(in_);
            in_.expect(";");
            Scope& scope = scopes_.back();
            const auto place = [&](std::size_t& bytes) {
                bytes = up(bytes, d.alignment);
                const std::size_t offset = bytes;
                bytes += d.size;
                return offset;
            };
            if (kind.is(".param")) {
                scope.symbols[d.name] = f_.own_bytes + place(f_.call_bytes);
                scope.passed[d.name] = d;
            } else {
                scope.symbols[d.name] = place(kind.is(".local") ? f_.local_bytes : f_.shared_bytes);
            }
            return;
        }
        if (kind.is(".loc") || kind.is(".pragma")) {
            const unsigned line = kind.line;
            while (!in_.done() && !in_.peek().is(";") && (kind.is(".pragma") || in_.peek().line == line)) in_.take();
            return;
        }
        refuse(kind.line, "the directive " + std::string(kind.text) + " is not known here");
    }

    /// ".reg .b32 %r<12>;" is %r0 to %r11.
    void registers() {
        in_.take();  // the type; instructions say theirs
        do {
            const std::string name(in_.take().text);
            if (in_.take_if("<")) {
                const std::uint64_t count = number_of(in_.take());
                in_.expect(">");
                for (std::uint64_t n = 0; n < count; ++n) declare(name + std::to_string(n));
            } else {
                declare(name);
            }
        } while (in_.take_if(","));
        in_.expect(";");
    }
    void declare(const std::string& name) { scopes_.back().registers[name] = static_cast<std::int32_t>(used_++); }

    /// A register's number; -1: the name is no register's.
    std::int32_t register_of(std::string_view name) const {
        for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope)
            if (const auto found = scope->registers.find(std::string(name)); found != scope->registers.end())
                return found->second;
        return -1;
    }
    template <class Map>
    auto symbol(Map Scope::*map, const Token& name) const {
        for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope)
            if (const auto found = ((*scope).*map).find(std::string(name.text)); found != ((*scope).*map).end())
                return found->second;
        refuse(name.line, "nothing is called " + std::string(name.text));
    }

    std::int32_t constant(std::uint64_t value) {
        const auto [at, is_new] = constants_.try_emplace(value, static_cast<std::int32_t>(f_.constants.size()));
        if (is_new) f_.constants.push_back(value);
        return ~at->second;
    }

    /// A register, a number, or a symbol's address.
    std::int32_t operand() {
        if (in_.take_if("-")) return constant(0 - number_of(in_.take()));
        const Token token = in_.take();
        if (is_number(token.text)) return constant(number_of(token));
        const std::int32_t found = register_of(token.text);
        if (found >= 0) return found;
        return constant(symbol(&Scope::symbols, token));
    }

    void add(Instruction& i, std::int32_t operand, unsigned line) {
        if (i.operands == std::size(i.operand)) refuse(line, "too many operands");
        i.operand[i.operands++] = operand;
    }

    /// "[%rd1+8]", "[name+-4]", "[%rd1]".
    void address(Instruction& i, unsigned line) {
        in_.expect("[");
        add(i, operand(), line);
        if (in_.take_if("+")) {
            const bool negative = in_.take_if("-");
            const auto number = static_cast<std::int64_t>(number_of(in_.take()));
            i.number = negative ? -number : number;
        }
        in_.expect("]");
    }

    static Opcode parts_of(std::string_view word) {
        Opcode parts(1);
        for (std::size_t n = 0; n < word.size(); ++n) {
            if (word[n] == '.')
                parts.emplace_back();
            else
                parts.back() += word[n];
        }
        return parts;
    }

    void instruction() {
        Instruction i;
        i.line = in_.peek().line;
        if (in_.take_if("@")) {
            i.guard_not = in_.take_if("!");
            i.guard = operand();
            if (i.guard < 0) refuse(i.line, "a guard that is no register");
        }
        const Token word = in_.take();
        Word& known = words_[word.text];
        if (known.parts.empty()) known.parts = parts_of(word.text);
        const Opcode& opcode = known.parts;
        if (opcode[0] == "call") return call(i);
        if (opcode[0] == "bra") {
            i.run = do_branch;
            jumps_.emplace_back(f_.code.size(), std::string(in_.take().text));
            in_.expect(";");
            f_.code.push_back(i);
            return;
        }
        if (opcode[0] == "mov" && special(i)) return;
        unsigned vector = 1;
        bool braces = false;
        std::size_t n = 0;
        for (; !in_.take_if(";"); ++n) {
            if (n > 0) in_.expect(",");
            if (in_.peek().is("[")) {
                address(i, i.line);
            } else if (in_.take_if("{")) {
                braces = true;
                vector = 0;
                const unsigned before = i.operands;
                do add(i, operand(), i.line);
                while (in_.take_if(","));
                in_.expect("}");
                vector = i.operands - before;
            } else {
                add(i, operand(), i.line);
                if ((opcode[0] == "shfl" || opcode[0] == "match") && in_.take_if("|")) {
                    add(i, operand(), i.line);
                    vector = 2;
                }
            }
            if (n == 0) first_operands_ = i.operands;
        }
        if (opcode[0] == "mov" && braces) return packing(i, opcode, vector);
        const auto [at, is_new] = known.forms.try_emplace(vector);
        Form& form = at->second;
        if (is_new) form = form_of(opcode, vector);
        if (form.run == nullptr) refuse(i.line, "the instruction " + std::string(word.text) + " is not known here");
        i.run = form.run;
        i.destinations = form.destinations;
        i.memory = form.memory;
        for (int d = 0; d < i.destinations; ++d)
            if (i.operand[d] < 0) refuse(i.line, "a destination that is no register");
        f_.code.push_back(i);
    }

    /// mov.b64 {a, b}, c and back: as many bits for each as there are together, divided.
    void packing(Instruction& i, const Opcode& opcode, unsigned vector) {
        const std::size_t bits = 8 * bytes_of("." + opcode.back(), i.line);
        if (bits > 64) refuse(i.line, "mov of more than 64 bits is not known here");
        i.number = static_cast<std::int64_t>(bits / vector);
        i.run = first_operands_ > 1 ? do_unpack : do_pack;
        i.destinations = static_cast<std::uint8_t>(first_operands_ > 1 ? vector : 1);
        f_.code.push_back(i);
    }

    /// mov.u32 %r1, %tid.x;
    bool special(Instruction& i) {
        const std::size_t here = in_.at();
        if (in_.peek().is("{")) return false;
        const Token to = in_.take();
        if (!in_.take_if(",") || in_.peek().text[0] != '%' || register_of(in_.peek().text) >= 0) {
            in_.go(here);
            return false;
        }
        const Token from = in_.take();
        in_.expect(";");
        i.run = special_of(std::string(from.text));
        if (i.run == nullptr) refuse(i.line, "the register " + std::string(from.text) + " is not known here");
        add(i, register_of(to.text), i.line);
        i.destinations = 1;
        f_.code.push_back(i);
        return true;
    }

    /// call.uni (result), name, (arguments);
    void call(Instruction& i) {
        const auto list = [&] {
            std::vector<Token> names;
            while (!in_.take_if(")")) {
                names.push_back(in_.take());
                in_.take_if(",");
            }
            return names;
        };
        std::vector<Token> results, arguments;
        if (in_.take_if("(")) {
            results = list();
            in_.expect(",");
        }
        const Token name = in_.take();
        if (in_.take_if(",")) {
            in_.expect("(");
            arguments = list();
        }
        in_.expect(";");
        Call c;
        c.function = function_of(name);
        if (c.function->parameters.size() != arguments.size() || c.function->results.size() != results.size())
            refuse(i.line, "a call of " + std::string(name.text) + " with other parameters than it has");
        const auto place = [&](const Token& t) { return symbol(&Scope::symbols, t) - f_.own_bytes; };
        for (std::size_t n = 0; n < arguments.size(); ++n) {
            const Parameter& p = c.function->parameters[n];
            c.arguments.push_back({place(arguments[n]), p.offset, p.size});
        }
        for (std::size_t n = 0; n < results.size(); ++n) {
            const Parameter& p = c.function->results[n];
            c.results.push_back({p.offset, place(results[n]), p.size});
        }
        i.run = do_call;
        i.number = static_cast<std::int64_t>(f_.calls.size());
        f_.calls.push_back(std::move(c));
        f_.code.push_back(i);
    }

    std::shared_ptr<const Function> function_of(const Token& name);

    Reader in_;
    const Outlines& outlines_;
    Functions& known_;
    const Variables& variables_;
    Function f_;
    std::vector<Scope> scopes_;
    std::unordered_map<std::string, std::size_t> labels_;
    std::vector<std::pair<std::size_t, std::string>> jumps_;
    std::unordered_map<std::uint64_t, std::int32_t> constants_;
    struct Word {
        Opcode parts;
        std::map<unsigned, Form> forms;  // by `vector`
    };
    std::unordered_map<std::string_view, Word> words_;
    unsigned used_ = 0;
    bool has_body_ = false;
    unsigned first_operands_ = 0;
};

std::shared_ptr<const Function> Decoder::function_of(const Token& name) {
    const std::string text(name.text);
    if (const auto found = known_.find(text); found != known_.end()) {
        if (found->second == nullptr) refuse(name.line, "recursion is not known here");
        return found->second;
    }
    const auto outline = outlines_.find(text);
    if (outline == outlines_.end()) refuse(name.line, "there is no function " + text);
    known_[text] = nullptr;  // under way
    auto decoded = Decoder(in_.tokens(), outline->second, outlines_, known_, variables_).decode();
    known_[text] = decoded;
    return decoded;
}

}  // namespace

struct Module::Parts {
    std::string text;
    std::vector<Token> tokens;
    Outlines outlines;
    Variables variables;
    std::mutex mutex;
    Functions functions;

    void outline();
    void function(Reader& in, bool entry);
    void variable(Reader& in, bool shared);
};

void Module::Parts::function(Reader& in, bool entry) {
    Outline o;
    o.entry = entry;
    if (!entry && in.take_if("(")) o.results = ptx::parameters(in);
    o.name = in.take().text;
    if (in.take_if("(")) o.parameters = ptx::parameters(in);
    while (!in.peek().is("{") && !in.peek().is(";")) {
        const Token directive = in.take();
        if (!directive.is(".maxntid")) continue;
        o.most_threads = 1;
        do o.most_threads *= static_cast<unsigned>(number_of(in.take()));
        while (in.take_if(","));
    }
    if (in.take_if(";")) {
        outlines.try_emplace(o.name, std::move(o));
        return;
    }
    in.expect("{");
    o.has_body = true;
    o.begin = in.at();
    for (int depth = 1; depth > 0;) {
        const Token& token = in.take();
        depth += token.is("{") ? 1 : token.is("}") ? -1 : 0;
    }
    o.end = in.at() - 1;
    outlines[o.name] = std::move(o);
}

/// ".align 4 .b8 name[5] = {1, 2};", behind its space.
void Module::Parts::variable(Reader& in, bool shared) {
    const Declared d = declaration(in);
    if (shared) {
        std::size_t& bytes = variables.shared_bytes;
        bytes = up(bytes, d.alignment);
        variables.symbols[d.name] = bytes;
        bytes += d.size;
        return in.expect(";");
    }
    if (d.alignment > alignof(std::max_align_t)) refuse(in.peek().line, "no variable is aligned to that");
    std::unique_ptr<std::byte[]> memory(new std::byte[d.size]());
    if (in.take_if("=")) {
        std::size_t at = 0;
        const bool list = in.take_if("{");
        do {
            const Token token = in.take();
            const std::uint64_t value = number_of(token);
            if (at + d.element > d.size) refuse(token.line, "a variable is set to more than it holds");
            std::memcpy(memory.get() + at, &value, d.element);
            at += d.element;
        } while (in.take_if(","));
        if (list) in.expect("}");
    }
    in.expect(";");
    variables.symbols[d.name] = reinterpret_cast<std::size_t>(memory.get());
    variables.global.emplace_back(std::move(memory), d.size);
}

void Module::Parts::outline() {
    Reader in(tokens, 0, tokens.size());
    in.expect(".version");
    while (!in.done()) {
        const Token token = in.take();
        if (token.is(".entry") || token.is(".func")) {
            function(in, token.is(".entry"));
        } else if (token.is(".shared") || token.is(".global") || token.is(".const")) {
            variable(in, token.is(".shared"));
        }
    }
}

Module::Module(std::string text) : parts_(std::make_unique<Parts>()) {
    parts_->text = without_comments(text);
    parts_->tokens = tokens_of(parts_->text);
    parts_->outline();
}

Module::~Module() = default;

bool Module::has(const std::string& name) const {
    const auto found = parts_->outlines.find(name);
    return found != parts_->outlines.end() && found->second.entry;
}

Kernel Module::kernel(const std::string& name) {
    const std::lock_guard lock(parts_->mutex);
    std::shared_ptr<const Function>& known = parts_->functions[name];
    if (known == nullptr) {
        if (!has(name)) throw std::runtime_error("the module has no kernel " + name);
        known =
            Decoder(parts_->tokens, parts_->outlines.at(name), parts_->outlines, parts_->functions, parts_->variables)
                .decode();
    }
    return Kernel(known);
}

}  // namespace tutti::ptx
