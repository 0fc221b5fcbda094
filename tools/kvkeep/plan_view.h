// A plan as JSON with stable keys, as tables, and as a chart. Pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tiers/policy/reuse_curve.h"
#include "tools/kvkeep/plan.h"
#include "tools/kvkeep/plan_g4.h"
#include "tools/kvkeep/print.h"

namespace kvkeep::tools {

struct Plan {
  std::string source;             // the trace's path, or the daemon's admin endpoint
  std::string method;             // "simulate" or "sample"
  std::string policies;           // assumed policies of both tiers, in words
  std::string model, model_from;  // its name, and the source of its numbers; may be empty
  std::string gpu, gpu_from;
  PlanWorkload workload;
  PlanAssumptions assumptions;
  ReuseCurve curve;
  std::vector<PlanRow> rows;
  // A daemon's present sizes, and its hit ratio since the curve began.
  struct Now {
    PlanPrediction predicted;
    double measured_hit_ratio = 0;
  };
  std::optional<Now> now;
  std::optional<PlanG4> g4;
};

Json PlanJson(const Plan& plan);
std::string PlanText(const Plan& plan);
std::string PlanChart(const Plan& plan);

}  // namespace kvkeep::tools
