// Output of tools: JSON whose keys keep their order, tables, bars. Pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace kvkeep::tools {

using Json = nlohmann::ordered_json;

// Makes untrusted text safe for a terminal: replaces control characters by '?'.
std::string Printable(const std::string& text);

// Formats rows of cells as aligned columns; the first row is the head. Makes cells Printable.
std::string FormatTable(const std::vector<std::vector<std::string>>& rows);

// Returns a bar like "[#####.....]", full by `share`; `columns` wide, at least 3.
std::string FormatBar(double share, size_t columns);

// Returns a percentage like "42.0%"; "-" if `whole` is 0.
std::string FormatShare(double part, double whole);

// Size of a terminal.
struct ScreenSize {
  size_t columns = 80, rows = 24;
};

// Returns the first `columns` of each line; colours take none.
std::string CutLines(const std::string& text, size_t columns);

enum class Color { kNone, kGreen, kYellow, kRed, kBold };
// Returns `text` in the colour if `enabled`.
std::string InColor(const std::string& text, Color color, bool enabled);

}  // namespace kvkeep::tools
