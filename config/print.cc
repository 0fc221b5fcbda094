// Prints a config as YAML (config.h).
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
      if (const ConfigList* list = FindConfigList(section.name); list != nullptr) {
        List(*list, section.name, "");
      } else {
        Section(section);
      }
    }
    return std::move(out_);
  }

 private:
  void Section(const ConfigSection& section) {
    absl::StrAppend(&out_, section.name, ":\n");
    const ConfigList* last = nullptr;
    for (const ConfigKey& key : ConfigKeys()) {
      if (key.section() != section.name) continue;
      const ConfigList* list = FindConfigList(key.list());
      if (list == nullptr) {
        Line(key, config_, "  ", "  ", 0);
      } else if (list != last) {
        if (annotated_) absl::StrAppend(&out_, "  # ", list->doc, "\n");
        List(*list, absl::string_view(list->path).substr(section.name.size() + 1), "  ");
      }
      last = list;
    }
  }

  void Line(const ConfigKey& key, Config& config, absl::string_view first_indent,
            absl::string_view indent, size_t entry) {
    if (annotated_) absl::StrAppend(&out_, indent, "# ", key.doc, " (", key.limits, ")\n");
    absl::StrAppend(&out_, first_indent, key.name(), ": ", key.get(config, entry), "\n");
  }

  void List(const ConfigList& list, absl::string_view name, absl::string_view indent) {
    const size_t entries = list.size(config_);
    absl::StrAppend(&out_, indent, name, entries == 0 ? ": []\n" : ":\n");
    for (size_t entry = 0; entry < entries; ++entry) Entry(list, config_, indent, entry);
    if (entries > 0 || !annotated_) return;
    Config example;
    list.set_example(example);
    absl::StrAppend(&out_, "# ", list.doc, "\n");
    Entry(list, example, absl::StrCat("#", indent), 0);
  }

  void Entry(const ConfigList& list, Config& config, absl::string_view indent, size_t entry) {
    bool first = true;
    for (const ConfigKey& key : ConfigKeys()) {
      if (key.list() != list.path) continue;
      Line(key, config, absl::StrCat(indent, first ? "  - " : "    "),
           absl::StrCat(indent, first ? "  " : "    "), entry);
      first = false;
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
