// JSON as a tree, read and written.
#include "base/json_tree.hpp"

#include "base/result.hpp"
#include "harness/catch.hpp"

using namespace tutti;

namespace {

std::string refusal_of(const std::string& text, JsonLimits limits) {
    try {
        parse_json(text, "f", limits);
    } catch (const Error& e) {
        return e.what();
    }
    return "";
}

}  // namespace

TEST_CASE("JSON that is written is read again, with the fields of objects in the order of their names") {
    Json object, list;
    list.kind = Json::Kind::array;
    list.items = {json_whole(-3), json_fraction(1), json_fraction(1e-5), json_text("\"\\\n\x01\xc3\xa9"), Json{}};
    object.add("b", list);
    object.add("a\"", json_text(""));
    object.add("empty", parse_json("{}", "f"));
    const std::string line = R"({"a\"":"","b":[-3,1.0,1e-05,"\"\\\n\u0001é",null],"empty":{}})";
    CHECK(text_of(object) == line);
    CHECK(text_of(parse_json(line, "f")) == line);
    const std::string lines = text_of(object, true);
    CHECK(lines.starts_with("{\n \"a\\\"\": \"\",\n \"b\": [\n  -3,\n  1.0,"));
    CHECK(lines.ends_with("null\n ],\n \"empty\": {}\n}"));
    CHECK(text_of(parse_json(lines, "f")) == line);
    CHECK(text_of(parse_json("[true, false, 9223372036854775807]", "f")) == "[true,false,9223372036854775807]");
}

TEST_CASE("JSON: a text or a name that is not UTF-8 is not written") {
    Json object;
    object.add("\xff", json_whole(1));
    CHECK_THROWS_AS(text_of(object), Error);
    CHECK_THROWS_AS(text_of(json_text("\xc3")), Error);
}

TEST_CASE("JSON: brackets and fields have limits, and a name comes once, however many there are") {
    std::string many = "{";
    for (int i = 0; i < 1000; ++i) many += text("\"f%d\": 0, ", i);
    CHECK(parse_json(many + "\"last\": 1}", "f", {.levels = 1, .fields = 1001}).items.back().number == 1);
    CHECK(refusal_of(many + "\"last\": 1}", {.levels = 1, .fields = 1000}) == "f:1: more than 1000 fields");
    CHECK(refusal_of(many + "\n\"f7\": 1}", {.levels = 1, .fields = 2000}) ==
          "f:2: the field 'f7' is here for the second time");
    CHECK(refusal_of(R"({"a": {"a": 1}, "b": {"a": 1}})", {.levels = 2, .fields = 2}).empty());
    CHECK(refusal_of("[[[]]]", {.levels = 2, .fields = 0}) == "f:1: more than 2 brackets are open");
}
