#include "tiers/policy/trace.h"

#include <catch2/catch.hpp>
#include <sstream>

namespace kvkeep {
namespace {

absl::StatusOr<std::vector<TraceRequest>> Parse(const std::string& text) {
  std::istringstream in(text);
  return ParseTrace(in, "t.jsonl");
}

std::string Refusal(const std::string& text) {
  const auto parsed = Parse(text);
  return parsed.ok() ? "accepted" : std::string(parsed.status().message());
}

const std::string kGood =
    R"({"timestamp": 5, "input_length": 700, "output_length": 9, "hash_ids": [3, 4]})"
    "\n";

}  // namespace

TEST_CASE("a trace is read line by line, blank lines and other fields aside") {
  const auto parsed = Parse(kGood + "\n \r\n" +
                            R"({"timestamp": 5, "input_length": 0, "output_length": 0,)"
                            R"( "hash_ids": [], "session": "x"})");
  REQUIRE(parsed.ok());
  REQUIRE(parsed->size() == 2);
  CHECK((*parsed)[0].timestamp == std::chrono::milliseconds(5));
  CHECK((*parsed)[0].input_tokens == 700);
  CHECK((*parsed)[0].output_tokens == 9);
  CHECK((*parsed)[0].hash_ids == std::vector<uint64_t>{3, 4});
  CHECK((*parsed)[1].hash_ids.empty());
  CHECK(Parse("")->empty());
}

TEST_CASE("an error names the line and the field") {
  const auto with = [](const std::string& timestamp, const std::string& input,
                       const std::string& ids) {
    return Refusal(kGood + "{\"timestamp\": " + timestamp + ", \"input_length\": " + input +
                   ", \"output_length\": 1, \"hash_ids\": " + ids + "}");
  };
  CHECK(with("6", "1", "[1]") == "accepted");
  CHECK(with("-1", "1", "[1]") == "t.jsonl:2: timestamp: must be an integer, 0 or more");
  CHECK(with("6", "1.5", "[1]") == "t.jsonl:2: input_length: must be an integer, 0 or more");
  CHECK(with("6", "\"1\"", "[1]") == "t.jsonl:2: input_length: must be an integer, 0 or more");
  CHECK(with("6", "1", "7") == "t.jsonl:2: hash_ids: must be an array");
  CHECK(with("6", "1", "[1, null]") == "t.jsonl:2: hash_ids[1]: must be an integer, 0 or more");
  CHECK(with("6", "1", "[18446744073709551616]") ==
        "t.jsonl:2: hash_ids[0]: must be an integer, 0 or more");
  CHECK_THAT(with("4", "1", "[1]"), Catch::StartsWith("t.jsonl:2: timestamp: 4 is before"));
  CHECK_THAT(with("18446744073709551615", "1", "[1]"),
             Catch::StartsWith("t.jsonl:2: timestamp: 18446744073709551615 ms, the limit"));
  CHECK(Refusal(R"({"timestamp": 1, "input_length": 1, "output_length": 1})") ==
        "t.jsonl:1: hash_ids: missing");
  CHECK(Refusal(R"({"timestamp": 1, "input_length": 1, "hash_ids": []})") ==
        "t.jsonl:1: output_length: missing");
  CHECK(Refusal(kGood + "\n[1]\n") == "t.jsonl:3: not a JSON object");
  CHECK(Refusal(kGood + "{\"timestamp\": 6") == "t.jsonl:2: not a JSON object");
}

TEST_CASE("a trace of too many requests is refused at the first that is too many") {
  std::istringstream two(kGood + kGood), three(kGood + kGood + kGood);
  CHECK(ParseTrace(two, "t.jsonl", 2)->size() == 2);
  CHECK(ParseTrace(three, "t.jsonl", 2).status().message() ==
        "t.jsonl:3: more than 2 requests; replay a part of the trace");
}

TEST_CASE("a chain over the limit is refused") {
  std::string ids = "1";
  for (size_t i = 0; i < kMaxTraceChain; ++i) ids += ",1";
  const auto parsed = Parse(
      "{\"timestamp\": 1, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": [" + ids + "]}");
  CHECK(parsed.status().code() == absl::StatusCode::kResourceExhausted);
}

TEST_CASE("of full chunks a prompt keeps all but the one that it ends within") {
  std::vector<TraceRequest> requests = {{.input_tokens = 1024, .hash_ids = {1, 2}},
                                        {.input_tokens = 1025, .hash_ids = {1, 2, 3}},
                                        {.input_tokens = 511, .hash_ids = {4}},
                                        {.input_tokens = 0, .hash_ids = {}}};
  KeepFullChunks(requests, 512);
  CHECK(requests[0].hash_ids == std::vector<uint64_t>{1, 2});
  CHECK(requests[0].partial_chunks == 0);
  CHECK(requests[1].hash_ids == std::vector<uint64_t>{1, 2});
  CHECK(requests[1].partial_chunks == 1);
  CHECK(requests[2].hash_ids.empty());
  CHECK(requests[2].partial_chunks == 1);
  CHECK(requests[3].partial_chunks == 0);
}

TEST_CASE("a file that cannot be opened or read is an error with its path") {
  const auto absent = ReadTrace("no/such/trace.jsonl");
  CHECK(absent.status().code() == absl::StatusCode::kNotFound);
  CHECK_THAT(std::string(absent.status().message()), Catch::StartsWith("no/such/trace.jsonl"));
  CHECK_FALSE(ReadTrace("tests").ok());  // a directory opens, but does not read
}

}  // namespace kvkeep
