// How tools print: JSON whose keys keep their order, tables, bars. Pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace kvkeep::tools {

using Json = nlohmann::ordered_json;

// Rows of cells to aligned columns; the first row is the head.
std::string FormatTable(const std::vector<std::vector<std::string>>& rows);

// "[#####.....]": so much of it is full; `columns` in all, at least 3.
std::string FormatBar(double share, size_t columns);

// "42.0%"; "-" of nothing.
std::string FormatShare(double part, double whole);

enum class Color { kNone, kGreen, kYellow, kRed, kBold };
// `text` in that colour where `enabled`.
std::string InColor(const std::string& text, Color color, bool enabled);

}  // namespace kvkeep::tools
