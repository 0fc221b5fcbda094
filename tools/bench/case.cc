#include "tools/bench/case.h"

#include <absl/strings/str_cat.h>

#include <array>
#include <utility>

#include "tiers/base/units.h"

namespace kvkeep::bench {
namespace {

constexpr std::array<std::pair<Verb, absl::string_view>, 5> kVerbs = {{{Verb::kGet, "get"},
                                                                       {Verb::kPut, "put"},
                                                                       {Verb::kLookup, "lookup"},
                                                                       {Verb::kMixed, "mixed"},
                                                                       {Verb::kPieces, "pieces"}}};

}  // namespace

absl::string_view VerbName(Verb verb) {
  for (const auto& [value, name] : kVerbs) {
    if (value == verb) return name;
  }
  return "?";
}

absl::StatusOr<Verb> ParseVerb(absl::string_view name) {
  for (const auto& [value, known] : kVerbs) {
    if (known == name) return value;
  }
  return absl::InvalidArgumentError(absl::StrCat("no verb '", name, "'"));
}

absl::Status CaseSpec::Validate() const {
  const auto bad = [](auto... parts) { return absl::InvalidArgumentError(absl::StrCat(parts...)); };
  if (size < kMinPayloadBytes || size > kMaxPayloadBytes) {
    return bad("size: ", size, " bytes; chunks are of 1 byte to 256 MiB");
  }
  if (batch == 0) return bad("batch: at least 1");
  if (depth == 0 || depth > kMaxDepth) return bad("depth: 1 to ", kMaxDepth);
  if (verb != Verb::kPut && keys < batch) return bad("keys: ", keys, ", fewer than one batch");
  if (verb == Verb::kPieces && (batch != 1 || depth != 1)) {
    return bad("batch and depth: pieces are waited for one chunk at a time");
  }
  if (run_bytes > 0) {
    if (verb != Verb::kGet && verb != Verb::kPut) return bad("on a GPU there are puts and gets");
    if (depth != 1) return bad("depth: on a GPU 1");
    if (adjacent == 0 || adjacent > size || run_bytes > size / adjacent) {
      return bad("run size: ", adjacent, " runs of ", run_bytes, " bytes are more than a chunk");
    }
  }
  if (verb == Verb::kMixed && get_weight + put_weight + lookup_weight == 0) {
    return bad("mix: all weights are 0");
  }
  return absl::OkStatus();
}

Json ToJson(const CaseSpec& spec) {
  Json json = {{"verb", std::string(VerbName(spec.verb))},
               {"size", spec.size},
               {"batch", spec.batch},
               {"depth", spec.depth},
               {"keys", spec.keys},
               {"verify", spec.verify},
               {"verify_all", spec.verify_all},
               {"no_g3", spec.no_g3}};
  if (spec.verb == Verb::kMixed) {
    json["mix"] = {spec.get_weight, spec.put_weight, spec.lookup_weight};
  }
  if (spec.run_bytes > 0) {
    json["run_bytes"] = spec.run_bytes;
    json["adjacent"] = spec.adjacent;
  }
  return json;
}

CaseSpec CaseFromJson(const Json& json) {
  CaseSpec spec;
  spec.verb = *ParseVerb(json.at("verb").get<std::string>());
  spec.size = json.at("size");
  spec.batch = json.at("batch");
  spec.depth = json.at("depth");
  spec.keys = json.at("keys");
  spec.verify = json.at("verify");
  spec.verify_all = json.at("verify_all");
  spec.no_g3 = json.at("no_g3");
  if (json.contains("mix")) {
    spec.get_weight = json["mix"].at(0);
    spec.put_weight = json["mix"].at(1);
    spec.lookup_weight = json["mix"].at(2);
  }
  spec.run_bytes = json.value("run_bytes", uint64_t{0});
  spec.adjacent = json.value("adjacent", 1u);
  return spec;
}

}  // namespace kvkeep::bench
