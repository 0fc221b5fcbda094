// Line charts as SVG text, for `plan`. No library; diffs are readable.
//
// Pure functions. Panels stand one above the other; x is a number of bytes, on a logarithmic axis.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace kvkeep::tools {

struct ChartLine {
  std::string name;
  std::vector<std::pair<double, double>> points;  // x rising; x above 0, y at least 0
  bool dashed = false;                            // else with a dot at each point
};

struct ChartPanel {
  std::string title, x_label;
  std::vector<ChartLine> lines;
};

std::string DrawChart(const std::string& title, const std::vector<ChartPanel>& panels);

}  // namespace kvkeep::tools
