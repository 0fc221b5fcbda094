// The models and GPUs that `plan` knows by name, from models.json at build time. The file has the
// source of each number. Free functions, thread-safe.
#pragma once

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

#include <string>
#include <vector>

namespace kvkeep::tools {

struct PlanModel {
  std::string name, source;
  double kv_bytes_per_token = 0;
  double active_parameters = 0;
  double attention_operations = 0;  // of a token and one that it reads; 0: not known
  double gpus = 1;   // the least of one deployment
  double mfu = 0.5;  // share of the peak that prefill gets
};

struct PlanGpu {
  std::string name, source;
  double bf16_tflops = 0, fp8_tflops = 0;  // dense; 0: cannot
  double watts = 0;
};

struct PlanModels {
  std::vector<PlanModel> models;
  std::vector<PlanGpu> gpus;
};

// Parses a file like models.json. InvalidArgument names the mistake.
absl::StatusOr<PlanModels> ParsePlanModels(absl::string_view json);
const PlanModels& KnownPlanModels();

// InvalidArgument lists the known names.
absl::StatusOr<PlanModel> FindPlanModel(absl::string_view name);
absl::StatusOr<PlanGpu> FindPlanGpu(absl::string_view name);

// models.json's text.
absl::string_view PlanModelsJson();

}  // namespace kvkeep::tools
