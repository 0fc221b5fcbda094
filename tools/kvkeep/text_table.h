// Tables for people, on a terminal.
#pragma once

#include <string>
#include <vector>

namespace kvkeep::tools {

// Rows of cells to aligned columns; the first row is the head.
std::string FormatTable(const std::vector<std::vector<std::string>>& rows);

}  // namespace kvkeep::tools
