// The formats of checkpoints: sums, headers of files, the index.
#include <algorithm>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "dp/safetensors.hpp"
#include "dp/saved.hpp"
#include "harness/catch.hpp"
#include "harness/harness.hpp"

using namespace tutti;
using harness::has;

TEST_CASE("sums of parts add up to that of the whole, and a change shows") {
    std::vector<std::byte> data(3001);  // sums go by rows of 1024 bytes
    for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i * 37 % 251);
    const std::uint64_t whole = dp::sum_of(data.data(), 0, data.size());
    CHECK(whole == 0x286e7c743fb2b3e3u);  // as checkpoints have it
    for (const std::size_t cut : {0u, 1u, 7u, 8u, 13u, 1000u, 1024u, 1030u, 2048u, 3000u, 3001u})
        CHECK(dp::sum_of(data.data(), 0, cut) + dp::sum_of(data.data() + cut, cut, data.size() - cut) == whole);
    CHECK(dp::sum_of(data.data() + 3, 3, 2) + dp::sum_of(data.data(), 0, 3) == dp::sum_of(data.data(), 0, 5));
    for (const std::size_t at : {0u, 8u, 999u, 1000u, 1024u, 3000u}) {
        std::vector<std::byte> changed = data;
        changed[at] ^= std::byte{0x80};
        CHECK(dp::sum_of(changed.data(), 0, changed.size()) != whole);
    }
    for (const std::size_t other : {8u, 1024u}) {
        std::vector<std::byte> swapped = data;
        std::swap_ranges(swapped.begin(), swapped.begin() + 8, swapped.begin() + other);
        CHECK(dp::sum_of(swapped.data(), 0, swapped.size()) != whole);
    }
}

TEST_CASE("headers of safetensors files: what is written is read, and nothing else is believed") {
    std::vector<dp::Tensor> tensors{{"a \"b\"", DataType::bfloat16, {3}, 3, 0}, {"c", DataType::float64, {2, 2}, 4, 0}};
    const std::string head = dp::safetensors_head(tensors);
    CHECK(head.size() % 64 == 0);
    CHECK(tensors[1].at == head.size());  // the widest first
    CHECK(tensors[0].at == head.size() + 32);
    const auto read = dp::safetensors_from(head.substr(8), head.size() + 38, "f");
    REQUIRE(read.size() == 2);
    CHECK(read[1].name == "a \"b\"");
    CHECK(read[1].at == tensors[0].at);
    CHECK(read[0].shape == std::vector<std::size_t>{2, 2});
    const auto refusal = [](const std::string& header, std::uint64_t data) -> std::string {
        try {
            dp::safetensors_from(header, 8 + header.size() + data, "f");
        } catch (const Error& error) {
            return error.what();
        }
        return "";
    };
    const auto one = [](const char* dtype, const char* shape, const char* offsets) {
        return text(R"({"a":{"dtype":"%s","shape":%s,"data_offsets":%s}})", dtype, shape, offsets);
    };
    CHECK(refusal(one("F32", "[1,2]", "[0,8]"), 8) == "");
    CHECK(has(refusal(one("F32", "[1,2]", "[0,8]"), 9), "torn"));
    CHECK(has(refusal(one("F32", "[1,2]", "[1,9]"), 9), "does not begin"));
    CHECK(has(refusal(one("F32", "[3]", "[0,8]"), 8), "as many bytes"));
    CHECK(has(refusal(one("F33", "[2]", "[0,8]"), 8), "F33"));
    CHECK(has(refusal(one("F32", "[-2]", "[0,8]"), 8), "shape"));
    CHECK(has(refusal(one("F32", "[4611686018427387904,4]", "[0,8]"), 8), "shape"));
    CHECK(has(refusal(one("F32", "[65536,65536,65536,65536]", "[0,0]"), 0), "elements"));
    CHECK(has(refusal(one("F32", "2", "[0,8]"), 8), "'shape' is no list"));
    CHECK(has(refusal(R"({"a":1})", 0), "an object"));
    CHECK(has(refusal(R"({"a":{},"a":{}})", 0), "second time"));
    CHECK(has(refusal("[", 0), "f"));
}

TEST_CASE("the index of a checkpoint has the text and the hash that it always had") {
    const std::string index = R"({
 "metadata": {
  "total_size": 12,
  "tutti": {
   "format": 3,
   "groups": [
    {
     "learning_rate_factor": 1.0,
     "weight_decay": 0.01
    },
    {
     "learning_rate_factor": 0.3333333333333333,
     "weight_decay": 1e+22
    }
   ],
   "hash": "6e703904e7b14bef",
   "learning_rate": 1e-05,
   "loss_scale": {
    "good_steps": 12,
    "scale": 65536.0
   },
   "model_sums": {
    "w": "00000000000000ff"
   },
   "notes": {
    "ep\"och": "3\né/\u0001"
   },
   "number": "00000000000000ab",
   "optimizer_map": {
    "exp_avg.w": "optimizer-00000000000000ab-00001-of-00001.safetensors"
   },
   "optimizer_sums": {
    "exp_avg.w": "0123456789abcdef"
   },
   "ranks": 2,
   "step": 7,
   "updates": {
    "w": 5
   }
  }
 },
 "weight_map": {
  "w": "model-00000000000000ab-00001-of-00001.safetensors"
 }
})";
    dp::Manifest m;
    m.number = 0xab;
    m.ranks = 2;
    m.step = 7;
    m.learning_rate = 1e-5;
    m.bytes = 12;
    m.groups = {{1.0, 0.01, 0, 0}, {0.3333333333333333, 1e22, 0, 0}};
    m.scale = {65536.0, 12};
    m.updates = {{"w", 5}};
    m.notes = {{"ep\"och", "3\n\xc3\xa9/\x01"}};
    m.model["w"] = {dp::shard_name("model", m.number, 0, 1), 0xff};
    m.optimizer["exp_avg.w"] = {dp::shard_name("optimizer", m.number, 0, 1), 0x0123456789abcdefu};
    CHECK(dp::text_of(m) == index + "\n");
    CHECK(dp::text_of(dp::manifest_from(index, "f")) == index + "\n");
    std::string changed = index;
    changed[changed.find("1e-05")] = '2';
    CHECK_THROWS_AS(dp::manifest_from(changed, "f"), Error);
}
