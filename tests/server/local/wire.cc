#include "tests/server/local/wire.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include <catch2/catch.hpp>

namespace kvkeep {

void SentMessage::RequireBytes(size_t bytes) const { REQUIRE(body.size() >= bytes); }

SentMessage ReadMessage(std::span<const std::byte> message, std::vector<UniqueFd> descriptors) {
  local::MessageHeader header;
  REQUIRE(message.size() >= sizeof(header));
  std::memcpy(&header, message.data(), sizeof(header));
  REQUIRE(header.bytes == message.size());
  SentMessage read;
  read.kind = header.kind;
  read.id = header.id;
  read.descriptors = std::move(descriptors);
  local::BodyReader body(message.subspan(sizeof(header)));
  if ((header.kind & local::kReplyBit) != 0) read.status = local::ReadReplyStatus(&body);
  read.body.assign(body.rest().begin(), body.rest().end());
  return read;
}

TestFound ReadFound(const SentMessage& reply) {
  INFO(reply.status);
  REQUIRE(reply.status.ok());
  local::BodyReader reader(reply.body);
  TestFound found;
  REQUIRE(reader.Read(&found.head));
  for (std::string* bitmap : {&found.g2, &found.g3}) {
    std::span<const std::byte> bytes;
    REQUIRE(reader.ReadBytes(uint64_t{found.head.keys} * found.head.row_bytes, &bytes));
    bitmap->assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  std::vector<local::Place> places;
  std::vector<local::ImageRun> runs;
  REQUIRE(reader.ReadAll(found.head.places, &places));
  REQUIRE(reader.ReadAll(found.head.runs, &runs));
  if (!reader.done()) REQUIRE(reader.Read(&found.cost));  // from version 3 on
  if (!reader.done()) {  // from version 7 on, if it was requested
    REQUIRE(reader.Read(&found.remote));
    std::span<const std::byte> bytes;
    REQUIRE(reader.ReadBytes(uint64_t{found.head.keys} * found.head.row_bytes, &bytes));
    found.coming.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  REQUIRE(reader.done());
  for (const local::Place& place : places) {
    REQUIRE(place.first_run + place.runs <= runs.size());
    found.places.push_back(
        {place, {runs.begin() + place.first_run, runs.begin() + place.first_run + place.runs}});
  }
  return found;
}

std::string ReadAnswers(const SentMessage& reply) {
  if (!reply.status.ok()) return reply.status.ToString();
  local::BodyReader reader(reply.body);
  local::PutReply head;
  REQUIRE(reader.Read(&head));
  std::vector<local::PutAnswer> answers;
  REQUIRE(reader.ReadAll(head.chunks, &answers));
  std::string text;
  for (const local::PutAnswer& answer : answers) {
    std::span<const std::byte> message;
    REQUIRE(reader.ReadBytes(answer.message_bytes, &message));
    if (!text.empty()) text += ", ";
    constexpr const char* kStatus[] = {"?", "stored", "present", "rejected"};
    text += kStatus[answer.status];
    if (answer.status != 3) continue;
    absl::StrAppend(&text, " ", answer.reason, ": ",
                    std::string(reinterpret_cast<const char*>(message.data()), message.size()));
  }
  REQUIRE(reader.done());
  return text;
}

std::string ReadGpuAnswers(const SentMessage& reply) {
  if (!reply.status.ok()) return reply.status.ToString();
  local::BodyReader reader(reply.body);
  local::GpuGetReply head;
  REQUIRE(reader.Read(&head));
  std::vector<local::GpuGetAnswer> answers;
  REQUIRE(reader.ReadAll(head.chunks, &answers));
  const auto take = [&reader](uint64_t bytes) {
    std::span<const std::byte> text;
    REQUIRE(reader.ReadBytes(bytes, &text));
    return std::string(reinterpret_cast<const char*>(text.data()), text.size());
  };
  std::vector<std::string> words;
  for (const local::GpuGetAnswer& answer : answers) {
    constexpr const char* kStatus[] = {"?", "copied ", "miss", "failed "};
    words.push_back(kStatus[answer.status] + take(answer.message_bytes));
  }
  for (size_t i = 0; i < words.size(); ++i) words[i] += take(answers[i].tail_bytes);
  REQUIRE(reader.done());
  return absl::StrJoin(words, "; ");
}

}  // namespace kvkeep
