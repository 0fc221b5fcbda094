#include "tools/kvkeep/print.h"

#include <absl/strings/ascii.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include <algorithm>
#include <cmath>

namespace kvkeep::tools {

std::string Printable(const std::string& text) {
  std::string printable = text;
  for (size_t i = 0; i < text.size(); ++i) {
    // U+0080 to U+009F, in UTF-8: control characters as well.
    const bool high = text[i] == '\xc2' && i + 1 < text.size() && text[i + 1] < '\xa0';
    if (absl::ascii_iscntrl(static_cast<unsigned char>(text[i])) || high) printable[i] = '?';
  }
  return printable;
}

std::string FormatTable(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      absl::StrAppend(&text, Printable(row[i]));
      if (i + 1 < row.size()) text.append(widths[i] - row[i].size() + 2, ' ');
    }
    text.push_back('\n');
  }
  return text;
}

std::string FormatBar(double share, size_t columns) {
  const size_t inside = std::max<size_t>(columns, 3) - 2;
  const double exact = std::clamp(share, 0.0, 1.0) * static_cast<double>(inside);
  const size_t full = std::min(inside, static_cast<size_t>(std::lround(exact)));
  return absl::StrCat("[", std::string(full, '#'), std::string(inside - full, '.'), "]");
}

std::string CutLines(const std::string& text, size_t columns) {
  std::string cut;
  size_t column = 0;
  bool in_color = false;
  for (const char c : text) {
    if (c == '\n') column = 0;
    in_color = in_color || c == '\033';
    if (in_color || c == '\n' || column++ < columns) cut.push_back(c);
    if (c == 'm') in_color = false;
  }
  return cut;
}

std::string FormatShare(double part, double whole) {
  return whole > 0 ? absl::StrFormat("%.1f%%", 100 * part / whole) : "-";
}

std::string InColor(const std::string& text, Color color, bool enabled) {
  if (!enabled || color == Color::kNone) return text;
  const char* code = color == Color::kGreen    ? "32"
                     : color == Color::kYellow ? "33"
                     : color == Color::kRed    ? "31"
                                               : "1";
  return absl::StrCat("\033[", code, "m", text, "\033[0m");
}

}  // namespace kvkeep::tools
