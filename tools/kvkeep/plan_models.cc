#include "tools/kvkeep/plan_models.h"

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include <nlohmann/json.hpp>

#include "tiers/base/check.h"
#include "tiers/base/status_macros.h"

namespace kvkeep::tools {
namespace {

using Json = nlohmann::json;

absl::StatusOr<std::string> Text(const Json& entry, const char* field) {
  const auto found = entry.find(field);
  if (found != entry.end() && found->is_string() && found->get<std::string>() != "") {
    return found->get<std::string>();
  }
  return absl::InvalidArgumentError(absl::StrCat(entry.dump(), ": ", field, ": must be a string"));
}

// Returns the field's number, or `otherwise` if it is absent; below 0 the field is required.
absl::StatusOr<double> Number(const Json& entry, const char* field, double otherwise = -1) {
  const auto found = entry.find(field);
  if (found == entry.end() && otherwise >= 0) return otherwise;
  if (found != entry.end() && found->is_number() && found->get<double>() > 0) {
    return found->get<double>();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(entry.dump(), ": ", field, ": must be a number above 0"));
}

absl::StatusOr<PlanModel> ParseModel(const Json& entry) {
  PlanModel model;
  KVKEEP_ASSIGN_OR_RETURN(model.name, Text(entry, "name"));
  KVKEEP_ASSIGN_OR_RETURN(model.source, Text(entry, "source"));
  KVKEEP_ASSIGN_OR_RETURN(const double layers, Number(entry, "layers"));
  KVKEEP_ASSIGN_OR_RETURN(const double element, Number(entry, "element_bytes"));
  KVKEEP_ASSIGN_OR_RETURN(double numbers, Number(entry, "latent_dim", 0));
  if (numbers == 0) {
    KVKEEP_ASSIGN_OR_RETURN(const double heads, Number(entry, "kv_heads"));
    KVKEEP_ASSIGN_OR_RETURN(const double dim, Number(entry, "head_dim"));
    numbers = 2 * heads * dim;
  }
  model.kv_bytes_per_token = layers * numbers * element;
  KVKEEP_ASSIGN_OR_RETURN(model.active_parameters, Number(entry, "active_parameters"));
  KVKEEP_ASSIGN_OR_RETURN(const double attending, Number(entry, "attention_layers", layers));
  KVKEEP_ASSIGN_OR_RETURN(const double query_heads, Number(entry, "query_heads", 0));
  KVKEEP_ASSIGN_OR_RETURN(const double head_dim, Number(entry, "head_dim", 0));
  model.attention_operations = 4 * attending * query_heads * head_dim;
  KVKEEP_ASSIGN_OR_RETURN(model.gpus, Number(entry, "gpus"));
  KVKEEP_ASSIGN_OR_RETURN(model.mfu, Number(entry, "mfu", model.mfu));
  return model;
}

absl::StatusOr<PlanGpu> ParseGpu(const Json& entry) {
  PlanGpu gpu;
  KVKEEP_ASSIGN_OR_RETURN(gpu.name, Text(entry, "name"));
  KVKEEP_ASSIGN_OR_RETURN(gpu.source, Text(entry, "source"));
  KVKEEP_ASSIGN_OR_RETURN(gpu.bf16_tflops, Number(entry, "bf16_tflops"));
  KVKEEP_ASSIGN_OR_RETURN(gpu.fp8_tflops, Number(entry, "fp8_tflops", 0));
  KVKEEP_ASSIGN_OR_RETURN(gpu.watts, Number(entry, "watts"));
  return gpu;
}

template <typename Entry>
absl::StatusOr<Entry> Find(const std::vector<Entry>& entries, absl::string_view what,
                           absl::string_view name) {
  for (const Entry& entry : entries) {
    if (entry.name == name) return entry;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "no ", what, " \"", name, "\", known are ",
      absl::StrJoin(entries, ", ",
                    [](std::string* out, const Entry& entry) { out->append(entry.name); })));
}

}  // namespace

absl::StatusOr<PlanModels> ParsePlanModels(absl::string_view json) {
  const Json file = Json::parse(json.begin(), json.end(), nullptr, false);
  if (!file.is_object() || !file.contains("models") || !file.contains("gpus")) {
    return absl::InvalidArgumentError("not a JSON object with models and gpus");
  }
  PlanModels known;
  for (const Json& entry : file["models"]) {
    KVKEEP_ASSIGN_OR_RETURN(known.models.emplace_back(), ParseModel(entry));
  }
  for (const Json& entry : file["gpus"]) {
    KVKEEP_ASSIGN_OR_RETURN(known.gpus.emplace_back(), ParseGpu(entry));
  }
  return known;
}

const PlanModels& KnownPlanModels() {
  static const PlanModels* const known = [] {
    auto parsed = ParsePlanModels(PlanModelsJson());
    KVKEEP_CHECK(parsed.ok());  // a test reads it
    return new PlanModels(*std::move(parsed));
  }();
  return *known;
}

absl::StatusOr<PlanModel> FindPlanModel(absl::string_view name) {
  return Find(KnownPlanModels().models, "model", name);
}

absl::StatusOr<PlanGpu> FindPlanGpu(absl::string_view name) {
  return Find(KnownPlanModels().gpus, "GPU", name);
}

}  // namespace kvkeep::tools
