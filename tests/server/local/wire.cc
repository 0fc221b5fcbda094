#include "tests/server/local/wire.h"

#include <absl/strings/str_cat.h>

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

std::vector<std::byte> HelloBody(const std::string& name) {
  std::vector<std::byte> body(sizeof(local::Hello) + name.size());
  const local::Hello hello{.name_bytes = static_cast<uint32_t>(name.size())};
  std::memcpy(body.data(), &hello, sizeof(hello));
  std::memcpy(body.data() + sizeof(hello), name.data(), name.size());
  return body;
}

std::vector<std::byte> NamespaceBody() {
  local::MessageWriter body(0, 0);
  body.Append(local::OpenNamespace{
      .tokens_per_chunk = 256, .parts = 4, .model_bytes = 4, .dtype_bytes = 4});
  body.AppendText("testbf16");
  const auto whole = body.Finish().subspan(sizeof(local::MessageHeader));
  return {whole.begin(), whole.end()};
}

std::vector<std::byte> KeysBody(const NamespaceDigest& ns, const std::vector<uint64_t>& names,
                                LeaseMode mode, const std::vector<local::ReleaseEntry>& releases,
                                uint64_t request_id, const std::vector<uint32_t>& parts) {
  local::MessageWriter body(0, 0);
  body.Append(local::KeysRequest{.ns = ns.bytes,
                                 .client_request_id = request_id,
                                 .keys = static_cast<uint32_t>(names.size()),
                                 .parts = static_cast<uint16_t>(parts.size()),
                                 .lease_mode = static_cast<uint8_t>(mode),
                                 .releases = static_cast<uint32_t>(releases.size())});
  body.AppendAll(std::span<const local::ReleaseEntry>(releases));
  body.AppendAll(std::span<const uint32_t>(parts));
  for (const uint64_t name : names) body.Append(MakeKey(name));
  const auto whole = body.Finish().subspan(sizeof(local::MessageHeader));
  return {whole.begin(), whole.end()};
}

std::vector<std::byte> PutBody(const NamespaceDigest& ns, const std::vector<TestChunk>& chunks) {
  local::MessageWriter body(0, 0);
  std::vector<local::PutRun> runs;
  std::vector<local::PutChunk> wire;
  std::string tails;
  for (const TestChunk& chunk : chunks) {
    wire.push_back({.key = MakeKey(chunk.name).bytes,
                    .checksum = chunk.checksum,
                    .part = chunk.part,
                    .payload_bytes = chunk.bytes,
                    .tail_bytes = static_cast<uint32_t>(chunk.tail.size()),
                    .first_run = static_cast<uint32_t>(runs.size()),
                    .runs = chunk.runs,
                    .flags = chunk.flags});
    uint64_t at = chunk.offset;
    for (uint32_t i = 0; i < chunk.runs; ++i) {
      const uint32_t bytes = i + 1 == chunk.runs
                                 ? chunk.bytes - chunk.bytes / chunk.runs * (chunk.runs - 1)
                                 : chunk.bytes / chunk.runs;
      runs.push_back({.region = chunk.region, .bytes = bytes, .offset = at});
      at += bytes;
    }
    tails += chunk.tail;
  }
  body.Append(local::PutRequest{.ns = ns.bytes,
                                .chunks = static_cast<uint32_t>(wire.size()),
                                .runs = static_cast<uint32_t>(runs.size())});
  body.AppendAll(std::span<const local::PutChunk>(wire));
  body.AppendAll(std::span<const local::PutRun>(runs));
  body.AppendText(tails);
  const auto whole = body.Finish().subspan(sizeof(local::MessageHeader));
  return {whole.begin(), whole.end()};
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

}  // namespace kvkeep
