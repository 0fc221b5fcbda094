#include "tools/kvkeep/svg_chart.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_replace.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "tools/kvkeep/units.h"

namespace kvkeep::tools {
namespace {

// Dimensions of the whole, and of a panel's plot within its space.
constexpr double kWidth = 900, kLeft = 64, kRight = 200, kHeader = 44;
constexpr double kPanel = 320, kAbove = 36, kBelow = 52;
constexpr std::array kColors = {"#0b5fa5", "#b5482f", "#5d7f5a", "#c9a227",
                                "#74b3e6", "#7a4fa3", "#9aa0a6", "#202124"};

std::string Escaped(const std::string& text) {
  return absl::StrReplaceAll(text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}});
}

// Returns a round distance between lines, at most six of which fit below `top`.
double NiceStep(double top) {
  for (double decade = 1e-3; decade < 1e18; decade *= 10) {
    for (const double digit : {1, 2, 5}) {
      if (top / (digit * decade) <= 6) return digit * decade;
    }
  }
  return top;
}

class Panel {
 public:
  Panel(const ChartPanel& panel, double top) : panel_(panel), top_(top + kAbove) {
    for (const ChartLine& line : panel.lines) {
      for (const auto& [x, y] : line.points) {
        low_ = std::min(low_, std::log2(x));
        high_ = std::max(high_, std::log2(x));
        most_ = std::max(most_, y);
      }
    }
    if (low_ > high_) low_ = high_ = 0;
    if (low_ == high_) {
      low_ -= 1;
      high_ += 1;
    }
    if (most_ <= 0) most_ = 1;
  }

  std::string Draw() const {
    std::string out = absl::StrFormat("<text x=\"%g\" y=\"%g\" class=\"title\">%s</text>\n", kLeft,
                                      top_ - 14, Escaped(panel_.title));
    DrawGrid(&out);
    double legend = top_ + 8;
    for (size_t i = 0; i < panel_.lines.size(); ++i, legend += 20) {
      DrawLine(panel_.lines[i], kColors[i % kColors.size()], legend, &out);
    }
    return out;
  }

 private:
  static constexpr double kHeight = kPanel - kAbove - kBelow;
  static constexpr double kPlot = kWidth - kLeft - kRight;
  double X(double bytes) const {
    return kLeft + (std::log2(bytes) - low_) / (high_ - low_) * kPlot;
  }
  double Y(double value) const { return top_ + kHeight - value / most_ * kHeight; }

  void DrawGrid(std::string* out) const {
    const double step = NiceStep(most_);
    for (double value = 0; value <= most_ * 1.0001; value += step) {
      absl::StrAppendFormat(out,
                            "<line x1=\"%g\" x2=\"%g\" y1=\"%.1f\" y2=\"%.1f\" class=\"grid\"/>\n",
                            kLeft, kWidth - kRight, Y(value), Y(value));
      absl::StrAppendFormat(out, "<text x=\"%g\" y=\"%.1f\" class=\"axis\">%g</text>\n", kLeft - 8,
                            Y(value) + 4, value);
    }
    const double octaves = std::max(1.0, std::ceil((high_ - low_) / 8));
    for (double at = std::ceil(low_ - 1e-9); at <= high_ + 1e-9; at += octaves) {
      const double bytes = std::exp2(at);
      absl::StrAppendFormat(out,
                            "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%g\" y2=\"%g\" class=\"grid\"/>\n",
                            X(bytes), X(bytes), top_, top_ + kHeight);
      absl::StrAppendFormat(out, "<text x=\"%.1f\" y=\"%g\" class=\"label\">%s</text>\n", X(bytes),
                            top_ + kHeight + 18, FormatBytes(static_cast<uint64_t>(bytes)));
    }
    absl::StrAppendFormat(out, "<text x=\"%g\" y=\"%g\" class=\"label\">%s</text>\n",
                          kLeft + kPlot / 2, top_ + kHeight + 38, Escaped(panel_.x_label));
  }

  void DrawLine(const ChartLine& line, const char* color, double legend, std::string* out) const {
    const char* dash = line.dashed ? " stroke-dasharray=\"5 4\"" : "";
    absl::StrAppendFormat(
        out, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\"%s points=\"", color, dash);
    for (const auto& [x, y] : line.points) absl::StrAppendFormat(out, "%.1f,%.1f ", X(x), Y(y));
    absl::StrAppend(out, "\"/>\n");
    for (const auto& [x, y] : line.points) {
      if (line.dashed) break;
      absl::StrAppendFormat(out,
                            "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"><title>%s, %s: "
                            "%.4g</title></circle>\n",
                            X(x), Y(y), color, Escaped(line.name),
                            FormatBytes(static_cast<uint64_t>(x)), y);
    }
    const double x = kWidth - kRight + 16;
    absl::StrAppendFormat(
        out, "<line x1=\"%g\" x2=\"%g\" y1=\"%g\" y2=\"%g\" stroke=\"%s\" stroke-width=\"2\"%s/>\n",
        x, x + 22, legend, legend, color, dash);
    absl::StrAppendFormat(out, "<text x=\"%g\" y=\"%g\">%s</text>\n", x + 28, legend + 4,
                          Escaped(line.name));
  }

  const ChartPanel& panel_;
  const double top_;
  double low_ = 1e9, high_ = -1e9;  // log2 of x
  double most_ = 0;
};

}  // namespace

std::string DrawChart(const std::string& title, const std::vector<ChartPanel>& panels) {
  const double height = kHeader + kPanel * static_cast<double>(panels.size());
  std::string out = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\" "
      "font-family=\"system-ui, sans-serif\" font-size=\"12\">\n"
      "<style>.head{font-weight:600;font-size:16px}.title{font-weight:600;font-size:14px}"
      ".axis{text-anchor:end;fill:#5f6368}.label{text-anchor:middle;fill:#5f6368}"
      ".grid{stroke:#e3e5e8}</style>\n"
      "<rect width=\"%g\" height=\"%g\" fill=\"#ffffff\"/>\n"
      "<text x=\"16\" y=\"28\" class=\"head\">%s</text>\n",
      kWidth, height, kWidth, height, Escaped(title));
  double top = kHeader;
  for (const ChartPanel& panel : panels) {
    absl::StrAppend(&out, Panel(panel, top).Draw());
    top += kPanel;
  }
  return out + "</svg>\n";
}

}  // namespace kvkeep::tools
