// The wire contract may only grow. The golden file lists every message field, enum value and call
// of kvkeep.v1 on a line of its own; the contract must match it line by line. A new line is added
// by regenerating the file, which shows it in the review; a removed or changed line breaks clients.
#include <google/protobuf/descriptor.h>

#include <catch2/catch.hpp>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "kvkeep/v1/kvkeep.pb.h"
#include "kvkeep/v1/peer.pb.h"

namespace kvkeep {
namespace {

constexpr const char* kGolden = "tests/proto/kvkeep.v1.golden.txt";

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::FileDescriptor;

const FileDescriptor& Contract() { return *v1::PutFrame::descriptor()->file(); }

std::string TypeOf(const FieldDescriptor& field) {
  std::string type = field.type_name();
  if (field.message_type() != nullptr) type = std::string(field.message_type()->full_name());
  if (field.enum_type() != nullptr) type = std::string(field.enum_type()->full_name());
  if (field.is_repeated()) return "repeated " + type;
  return field.has_presence() && field.message_type() == nullptr ? "optional " + type : type;
}

void AddMessage(const Descriptor& message, std::set<std::string>* lines) {
  lines->insert("message " + message.full_name());
  for (int i = 0; i < message.field_count(); ++i) {
    const FieldDescriptor& field = *message.field(i);
    lines->insert(absl::StrCat("field ", message.full_name(), " ", field.number(), " ",
                               field.name(), " ", TypeOf(field)));
  }
  for (int i = 0; i < message.nested_type_count(); ++i) AddMessage(*message.nested_type(i), lines);
}

void AddEnum(const EnumDescriptor& type, std::set<std::string>* lines) {
  for (int i = 0; i < type.value_count(); ++i) {
    lines->insert(absl::StrCat("enum ", type.full_name(), " ", type.value(i)->number(), " ",
                               type.value(i)->name()));
  }
}

void AddFile(const FileDescriptor& file, std::set<std::string>* lines) {
  for (int i = 0; i < file.message_type_count(); ++i) AddMessage(*file.message_type(i), lines);
  for (int i = 0; i < file.enum_type_count(); ++i) AddEnum(*file.enum_type(i), lines);
  for (int i = 0; i < file.service_count(); ++i) {
    const auto& service = *file.service(i);
    for (int m = 0; m < service.method_count(); ++m) {
      const auto& method = *service.method(m);
      const auto stream = [](bool streaming) { return streaming ? "stream " : ""; };
      lines->insert(absl::StrCat(
          "rpc ", service.full_name(), ".", method.name(), " (", stream(method.client_streaming()),
          method.input_type()->full_name(), ") returns (", stream(method.server_streaming()),
          method.output_type()->full_name(), ")"));
    }
  }
}

std::set<std::string> ContractLines() {
  std::set<std::string> lines;
  AddFile(Contract(), &lines);
  AddFile(*v1::FetchFrame::descriptor()->file(), &lines);  // what nodes say to each other
  return lines;
}

std::set<std::string> GoldenLines() {
  std::set<std::string> lines;
  std::ifstream file(kGolden);
  for (std::string line; std::getline(file, line);) {
    if (!line.empty() && line[0] != '#') lines.insert(line);
  }
  return lines;
}

bool IsSnakeCase(const std::string& name, bool upper) {
  for (const char c : name) {
    const bool letter = upper ? std::isupper(static_cast<unsigned char>(c))
                              : std::islower(static_cast<unsigned char>(c));
    if (!letter && c != '_' && !std::isdigit(static_cast<unsigned char>(c))) return false;
  }
  return !name.empty() && name.find("__") == std::string::npos;
}

// "ChunkStatus" -> "CHUNK_STATUS_"
std::string EnumPrefix(const std::string& name) {
  std::string prefix;
  for (size_t i = 0; i < name.size(); ++i) {
    if (i > 0 && std::isupper(static_cast<unsigned char>(name[i]))) prefix += '_';
    prefix += static_cast<char>(std::toupper(static_cast<unsigned char>(name[i])));
  }
  return prefix + "_";
}

}  // namespace

TEST_CASE(
    "nothing of the wire contract was removed or changed, and what was added is in the golden "
    "file") {
  const std::set<std::string> now = ContractLines();
  if (std::getenv("KVKEEP_UPDATE_GOLDEN") != nullptr) {
    std::ofstream file(kGolden);
    file << "# Every field, enum value and call of kvkeep.v1. Lines are only ever added:\n"
            "# KVKEEP_UPDATE_GOLDEN=1 build/release/bin/proto_test, in the root of the "
            "repository.\n";
    for (const std::string& line : now) file << line << '\n';
  }
  const std::set<std::string> golden = GoldenLines();
  for (const std::string& line : golden) {
    if (!now.contains(line)) {
      FAIL_CHECK("gone or changed, which breaks clients that exist: " << line);
    }
  }
  for (const std::string& line : now) {
    if (!golden.contains(line)) {
      FAIL_CHECK("new: " << line << "\nif meant, regenerate " << kGolden
                         << " with KVKEEP_UPDATE_GOLDEN=1 and commit it");
    }
  }
  CHECK(golden.size() > 150);  // of the first version: an empty file does not pass
}

TEST_CASE("the payload is the last field of its frames, so that it can be moved without a copy") {
  for (const Descriptor* frame : {v1::PutFrame::descriptor(), v1::GetFrame::descriptor()}) {
    for (int i = 0; i < frame->field_count(); ++i) CHECK(frame->field(i)->number() <= 15);
    CHECK(frame->FindFieldByNumber(15)->name() == "payload");
  }
}

TEST_CASE("names of the contract follow the usual style of protobuf") {
  const FileDescriptor& file = Contract();
  for (int i = 0; i < file.message_type_count(); ++i) {
    const Descriptor& message = *file.message_type(i);
    for (int f = 0; f < message.field_count(); ++f) {
      INFO(message.field(f)->full_name());
      CHECK(IsSnakeCase(std::string(message.field(f)->name()), /*upper=*/false));
    }
  }
  for (int i = 0; i < file.enum_type_count(); ++i) {
    const EnumDescriptor& type = *file.enum_type(i);
    const std::string prefix = EnumPrefix(std::string(type.name()));
    CHECK(type.FindValueByNumber(0) != nullptr);
    for (int v = 0; v < type.value_count(); ++v) {
      const std::string name(type.value(v)->name());
      INFO(name);
      CHECK(IsSnakeCase(name, /*upper=*/true));
      CHECK(name.compare(0, prefix.size(), prefix) == 0);
    }
  }
}

}  // namespace kvkeep
