// A config as YAML (config.h).
#include <absl/strings/str_cat.h>
#include <absl/strings/string_view.h>

#include "config/config.h"
#include "config/schema.h"

namespace kvkeep {
namespace {

constexpr char kHeader[] =
    "# kvkeep configuration. Every key is optional; the values below are the defaults.\n"
    "# Sizes: 64GiB, 512MiB, 4096 (KB, MB, GB, TB are decimal). Counts: 4M, 64k, 64Ki.\n"
    "# Times: 250ms, 15s, 1m. Shares: 25%.\n";

class Printer {
 public:
  Printer(const Config& config, bool annotated) : config_(config), annotated_(annotated) {}

  std::string Print() {
    if (annotated_) out_ += kHeader;
    for (const ConfigSection& section : ConfigSections()) {
      if (annotated_) absl::StrAppend(&out_, "\n# ", section.doc, "\n");
      absl::StrAppend(&out_, section.name, ":\n");
      bool list_done = false;
      for (const ConfigKey& key : ConfigKeys()) {
        if (key.section() != section.name) continue;
        if (!key.in_list()) {
          Line(key, "  ", "  ", 0);
        } else if (!list_done) {
          List();
          list_done = true;
        }
      }
    }
    return std::move(out_);
  }

 private:
  void Line(const ConfigKey& key, absl::string_view first_indent, absl::string_view indent,
            size_t entry) {
    if (annotated_) absl::StrAppend(&out_, indent, "# ", key.doc, " (", key.limits, ")\n");
    absl::StrAppend(&out_, first_indent, key.name(), ": ", key.get(config_, entry), "\n");
  }

  void List() {
    if (annotated_) absl::StrAppend(&out_, "  # ", G3PathsDoc(), "\n");
    absl::StrAppend(&out_, "  paths:", config_.g3.paths.empty() ? " []\n" : "\n");
    for (size_t entry = 0; entry < config_.g3.paths.size(); ++entry) {
      bool first = true;
      for (const ConfigKey& key : ConfigKeys()) {
        if (!key.in_list()) continue;
        Line(key, first ? "    - " : "      ", first ? "    " : "      ", entry);
        first = false;
      }
    }
  }

  Config config_;
  const bool annotated_;
  std::string out_;
};

}  // namespace

std::string PrintConfig(const Config& config) { return Printer(config, false).Print(); }

std::string PrintDefaultConfig() { return Printer(Config{}, true).Print(); }

}  // namespace kvkeep
