// How tools print: JSON whose keys keep their order, tables, bars. Pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace kvkeep::tools {

using Json = nlohmann::ordered_json;

// Makes text that others chose safe for a terminal: replaces control characters, which the terminal
// would obey, by '?'.
std::string Printable(const std::string& text);

// Rows of cells to aligned columns; the first row is the head. Cells are Printable.
std::string FormatTable(const std::vector<std::vector<std::string>>& rows);

// "[#####.....]": so much of it is full; `columns` in all, at least 3.
std::string FormatBar(double share, size_t columns);

// "42.0%"; "-" of nothing.
std::string FormatShare(double part, double whole);

// Size of a terminal.
struct ScreenSize {
  size_t columns = 80, rows = 24;
};

// The first `columns` of each line, whose colours take none.
std::string CutLines(const std::string& text, size_t columns);

enum class Color { kNone, kGreen, kYellow, kRed, kBold };
// `text` in that colour where `enabled`.
std::string InColor(const std::string& text, Color color, bool enabled);

}  // namespace kvkeep::tools
