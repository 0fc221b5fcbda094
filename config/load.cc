// Makes a Config of YAML text, or finds all of its errors (config.h).
#include <absl/container/flat_hash_map.h>
#include <absl/container/flat_hash_set.h>
#include <absl/functional/function_ref.h>
#include <absl/strings/escaping.h>
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_split.h>
#include <yaml-cpp/depthguard.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <exception>
#include <fstream>
#include <iterator>
#include <sstream>
#include <tuple>
#include <utility>

#include "config/config.h"
#include "config/cross_check.h"
#include "config/schema.h"
#include "config/sources.h"
#include "config/suggest.h"
#include "config/values.h"

namespace kvkeep {
namespace {

// A place in the file: lines and columns count from 1; 0: no place.
struct Position {
  int line = 0;
  int column = 0;
  size_t setting = 0;  // number of the setting outside of the file, from 1; 0: the file
};

bool Before(const Position& a, const Position& b) {
  const auto rank = [](const Position& p) {  // what has no place is last
    return std::tuple(p.line == 0 && p.setting == 0, p.setting, p.line, p.column);
  };
  return rank(a) < rank(b);
}

struct Error {
  Position position;
  std::string message;
};

const char* KindOf(const YAML::Node& node) {
  switch (node.Type()) {
    case YAML::NodeType::Map:
      return "a map";
    case YAML::NodeType::Sequence:
      return "a list";
    case YAML::NodeType::Scalar:
      return "a single value";
    case YAML::NodeType::Null:
    case YAML::NodeType::Undefined:
      return "nothing";
  }
  return "something else";
}

// Notes where documents begin, and ignores a parser's other events.
class DocumentStarts final : public YAML::EventHandler {
 public:
  const YAML::Mark& last() const { return last_; }

  void OnDocumentStart(const YAML::Mark& mark) override { last_ = mark; }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t,
                const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}

 private:
  YAML::Mark last_;
};

class Loader {
 public:
  explicit Loader(absl::string_view filename, Config base = {})
      : filename_(filename), config_(std::move(base)) {}

  void Read(absl::string_view text);
  // Overrides what was read.
  void Set(const ConfigSetting& setting);
  LoadResult Finish();

 private:
  // A key's paths while its value is read. `shown` has list indices, `schema` has "[]".
  struct Place {
    std::string schema, shown;
    size_t entry = 0;
  };
  using Visit = absl::FunctionRef<bool(const std::string& name, const Place& place,
                                       const YAML::Node& key, const YAML::Node& value)>;

  void Parse(const std::string& text);
  // Runs `read`, and catches the exceptions of the YAML library.
  void Guarded(const char* what, absl::FunctionRef<void()> read);
  Position PositionOf(const YAML::Mark& mark) const;
  std::string Where(const Position& at) const;
  void ForgetList(const ConfigList& list);
  void ReadRoot(const YAML::Node& root);
  void ReadSection(const Place& section, const YAML::Node& node);
  void ReadList(const ConfigList& list, const YAML::Node& node);
  void ReadListEntry(const ConfigList& list, const Place& entry, const YAML::Node& node);
  void ReadValue(const ConfigKey& key, const Place& place, const YAML::Node& key_node,
                 const YAML::Node& value);
  // Calls `visit` for every key of a map once; false from it means that the key is unknown.
  void VisitMap(const Place& parent, const YAML::Node& map, Visit visit);
  void ReportDirectives(const std::string& text);
  void ReportTabs(const std::string& text);
  void ReportConflicts();

  void Fail(Position position, std::string message) {
    errors_.push_back({position, std::move(message)});
  }

  const std::string filename_;
  Config config_;
  std::vector<std::string> settings_;  // their origins
  size_t setting_ = 0;                 // that is read now; 0: the file
  std::vector<Error> errors_;
  absl::flat_hash_map<std::string, Position> positions_;  // of the values given, by shown path
  absl::flat_hash_set<std::string> failed_;               // shown paths whose value is no good
};

Position Loader::PositionOf(const YAML::Mark& mark) const {
  if (setting_ > 0) return {0, 0, setting_};
  if (mark.is_null()) return {};
  return {mark.line + 1, mark.column + 1};
}

void Loader::Guarded(const char* what, absl::FunctionRef<void()> read) {
  try {
    read();
  } catch (const YAML::DeepRecursion& e) {
    Fail(PositionOf(e.mark), absl::StrCat(what, "not valid YAML: nested too deep"));
  } catch (const YAML::Exception& e) {
    Fail(PositionOf(e.mark),
         absl::StrCat(what, "not valid YAML: ", absl::Utf8SafeCHexEscape(e.msg)));
  } catch (const std::exception& e) {
    Fail(PositionOf({}), absl::StrCat(what, "cannot be read as YAML: ", e.what()));
  }
}

void Loader::Read(absl::string_view text) {
  if (text.size() > kMaxConfigBytes) {
    return Fail({}, absl::StrFormat("has more than %d bytes, the most a configuration may have",
                                    kMaxConfigBytes));
  }
  const std::string copy(text);
  bool whole = false;
  Guarded("", [&] {
    Parse(copy);
    whole = true;
  });
  if (!whole) ReportTabs(copy);
}

void Loader::Set(const ConfigSetting& setting) {
  settings_.push_back(setting.origin);
  setting_ = settings_.size();
  if (const ConfigList* list = FindConfigList(setting.path); list != nullptr) {
    ForgetList(*list);
    Guarded("", [&] { ReadList(*list, YAML::Load(setting.value)); });
    return;
  }
  for (const ConfigKey& key : ConfigKeys()) {
    if (key.path != setting.path || !key.list().empty()) continue;
    positions_[key.path] = PositionOf({});
    failed_.erase(key.path);
    const absl::Status status = key.set(setting.value, config_, 0);
    if (status.ok()) return;
    failed_.insert(key.path);
    return Fail(PositionOf({}), absl::StrCat(key.path, ": ", status.message()));
  }
  Fail(PositionOf({}), absl::StrCat("no key is called ", QuoteForMessage(setting.path),
                                    WhatToDoIfGone(setting.path)));
}

// Forgets what is known of the list's entries: they were other entries.
void Loader::ForgetList(const ConfigList& list) {
  const std::string prefix = absl::StrCat(list.path, "[");
  const auto is_its = [&](const std::string& path) { return absl::StartsWith(path, prefix); };
  absl::erase_if(positions_, [&](const auto& item) { return is_its(item.first); });
  absl::erase_if(failed_, is_its);
}

void Loader::Parse(const std::string& text) {
  ReportDirectives(text);
  // Not YAML::LoadAll: a stray ',' is to it a document of no length, over and over.
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  DocumentStarts starts;
  if (!parser.HandleNextDocument(starts)) return;  // an empty file: all defaults
  const bool second = parser.HandleNextDocument(starts);
  ReadRoot(YAML::Load(text));
  if (!second) return;
  const auto at = static_cast<size_t>(starts.last().pos);
  const bool stray = at < text.size() && text[at] == ',';
  Fail(PositionOf(starts.last()), stray ? "not valid YAML: a ',' that belongs to nothing"
                                        : "a second YAML document begins here: only one is read");
}

void Loader::ReadRoot(const YAML::Node& root) {
  if (root.IsNull()) return;
  if (!root.IsMap()) {
    Fail(PositionOf(root.Mark()),
         absl::StrCat("expected sections such as 'g2:', found ", KindOf(root)));
    return;
  }
  VisitMap({}, root,
           [this](const std::string& name, const Place& place, const YAML::Node&,
                  const YAML::Node& value) {
             const auto& sections = ConfigSections();
             const bool known = std::any_of(sections.begin(), sections.end(),
                                            [&](const ConfigSection& s) { return s.name == name; });
             if (!known) return false;
             if (const ConfigList* list = FindConfigList(name); list != nullptr) {
               if (!value.IsNull()) ReadList(*list, value);
             } else {
               ReadSection(place, value);
             }
             return true;
           });
}

void Loader::ReadSection(const Place& section, const YAML::Node& node) {
  if (node.IsNull()) return;  // all its keys commented out
  if (!node.IsMap()) {
    Fail(PositionOf(node.Mark()),
         absl::StrCat(section.shown, ": expected keys under it, found ", KindOf(node)));
    return;
  }
  VisitMap(section, node,
           [this](const std::string&, const Place& place, const YAML::Node& key_node,
                  const YAML::Node& value) {
             if (const ConfigList* list = FindConfigList(place.schema); list != nullptr) {
               ReadList(*list, value);
               return true;
             }
             for (const ConfigKey& key : ConfigKeys()) {
               if (key.path != place.schema) continue;
               ReadValue(key, place, key_node, value);
               return true;
             }
             return false;
           });
}

void Loader::ReadList(const ConfigList& list, const YAML::Node& node) {
  positions_[list.path] = PositionOf(node.Mark());
  if (!node.IsSequence()) {
    // The entry there is only the default.
    for (const ConfigKey& key : ConfigKeys()) {
      if (key.list() == list.path) failed_.insert(absl::StrCat(list.path, "[0].", key.name()));
    }
    Fail(PositionOf(node.Mark()), absl::StrCat(list.path, ": expected a list like [",
                                               list.example_entry, "], found ", KindOf(node)));
    return;
  }
  if (node.size() > list.max_entries) {
    Fail(PositionOf(node.Mark()), absl::StrFormat("%s: %d entries are out of range: 0 to %d",
                                                  list.path, node.size(), list.max_entries));
    return;
  }
  list.resize(config_, node.size());
  for (size_t entry = 0; entry < node.size(); ++entry) {
    const Place place{absl::StrCat(list.path, "[]"), absl::StrCat(list.path, "[", entry, "]"),
                      entry};
    ReadListEntry(list, place, node[entry]);
  }
}

void Loader::ReadListEntry(const ConfigList& list, const Place& entry, const YAML::Node& node) {
  const bool is_map = node.IsMap();
  if (is_map) {
    ReadSection(entry, node);
  } else {
    Fail(PositionOf(node.Mark()),
         absl::StrCat(entry.shown, ": expected ", list.entry_shape, ", found ", KindOf(node)));
  }
  for (const ConfigKey& key : ConfigKeys()) {
    if (key.list() != list.path || key.when_missing.empty()) continue;
    const std::string shown = absl::StrCat(entry.shown, ".", key.name());
    if (positions_.count(shown) != 0) continue;
    failed_.insert(shown);  // the field holds no value that somebody set
    if (!is_map) continue;
    Fail(PositionOf(node.Mark()), absl::StrCat(shown, ": is missing; ", key.when_missing));
  }
}

// Returns a list of scalars as one text, "[1, 2]"; none if the node is something else.
std::optional<std::string> ListText(const YAML::Node& node) {
  if (!node.IsSequence()) return std::nullopt;
  std::vector<std::string> items;
  for (const YAML::Node& item : node) {
    if (!item.IsScalar()) return std::nullopt;
    items.push_back(item.Scalar());
  }
  return absl::StrCat("[", absl::StrJoin(items, ", "), "]");
}

void Loader::ReadValue(const ConfigKey& key, const Place& place, const YAML::Node& key_node,
                       const YAML::Node& value) {
  // An empty value has no place of its own.
  const Position position = PositionOf(value.IsNull() ? key_node.Mark() : value.Mark());
  positions_[place.shown] = position;
  std::optional<std::string> text;
  if (key.shape == ConfigShape::kList) {
    text = ListText(value);
  } else if (value.IsScalar()) {
    text = value.Scalar();
  }
  if (!text.has_value()) {
    failed_.insert(place.shown);
    Fail(position, absl::StrCat(place.shown, ": expected ", key.wanted, ", found ", KindOf(value)));
    return;
  }
  const absl::Status status = key.set(*text, config_, place.entry);
  if (status.ok()) return;
  failed_.insert(place.shown);
  Fail(position, absl::StrCat(place.shown, ": ", status.message()));
}

void Loader::VisitMap(const Place& parent, const YAML::Node& map, Visit visit) {
  absl::flat_hash_map<std::string, int> lines;  // of the keys seen
  for (const auto& item : map) {
    const YAML::Node& key = item.first;
    const Position position = PositionOf(key.Mark());
    if (!key.IsScalar()) {
      Fail(position, absl::StrCat(parent.shown.empty() ? "" : parent.shown + ": ",
                                  "expected a name as key, found ", KindOf(key)));
      continue;
    }
    const std::string& name = key.Scalar();
    const char* dot = parent.shown.empty() ? "" : ".";
    const Place place{absl::StrCat(parent.schema, dot, name), absl::StrCat(parent.shown, dot, name),
                      parent.entry};
    if (const auto [first, is_new] = lines.try_emplace(name, position.line); !is_new) {
      Fail(position, absl::StrCat("duplicate key ", QuoteForMessage(place.shown),
                                  ", first given in line ", first->second));
      continue;
    }
    if (!visit(name, place, key, item.second)) {
      Fail(position, absl::StrCat("unknown key ", QuoteForMessage(place.shown),
                                  SuggestKey(parent.schema, name)));
    }
  }
}

// yaml-cpp skips every line that begins with %, so a slip would be lost in silence.
void Loader::ReportDirectives(const std::string& text) {
  int number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    if (!absl::StartsWith(line, "%")) continue;
    Fail({number, 1}, "a line that begins with % is a YAML directive: none is read here");
    return;
  }
}

// yaml-cpp reports tabs in some places only, and elsewhere reports what they led to.
void Loader::ReportTabs(const std::string& text) {
  int number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    const size_t indent = std::min(line.find_first_not_of(" \t"), line.size());
    const size_t tab = line.substr(0, indent).find('\t');
    if (tab == absl::string_view::npos || indent == line.size()) continue;
    Fail({number, static_cast<int>(tab) + 1}, "a tab in the indentation: YAML wants spaces");
    return;
  }
}

void Loader::ReportConflicts() {
  for (const Conflict& conflict : FindConflicts(config_)) {
    const bool meaningless =
        std::any_of(conflict.keys.begin(), conflict.keys.end(),
                    [this](const std::string& key) { return failed_.count(key) > 0; });
    if (meaningless) continue;  // its own error is reported already
    Position position;
    for (const std::string& key : conflict.keys) {
      const auto found = positions_.find(key);
      if (found == positions_.end()) continue;
      position = found->second;
      break;
    }
    Fail(position, conflict.message);
  }
}

std::string Loader::Where(const Position& at) const {
  if (at.setting > 0) return settings_[at.setting - 1];
  return at.line == 0 ? filename_ : absl::StrCat(filename_, ":", at.line);
}

LoadResult Loader::Finish() {
  setting_ = 0;
  ReportConflicts();
  LoadResult result;
  if (errors_.empty()) {
    result.config = std::move(config_);
    for (const auto& [path, position] : positions_) result.origins[path] = Where(position);
    return result;
  }
  // In the order of the file.
  std::stable_sort(errors_.begin(), errors_.end(),
                   [](const Error& a, const Error& b) { return Before(a.position, b.position); });
  for (const Error& error : errors_) {
    if (result.errors.size() == kMaxConfigErrors) {
      result.errors.push_back(
          absl::StrCat(filename_, ": and ", errors_.size() - kMaxConfigErrors, " more errors"));
      break;
    }
    const std::string column =
        error.position.line == 0 ? "" : absl::StrCat(":", error.position.column);
    result.errors.push_back(absl::StrCat(Where(error.position), column, ": ", error.message));
  }
  return result;
}

// Returns a file's text. Reads one byte more than allowed, so that a longer file is detected.
std::optional<std::string> ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kMaxConfigBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.is_open() || file.bad()) return std::nullopt;
  text.resize(static_cast<size_t>(file.gcount()));
  return text;
}

LoadResult Unreadable(const std::string& path) {
  return {
      .errors = {absl::StrCat(path, ": cannot be read; give the path of a readable YAML file")}};
}

}  // namespace

LoadResult LoadConfig(absl::string_view text, absl::string_view filename) {
  Loader loader(filename);
  loader.Read(text);
  return loader.Finish();
}

LoadResult LoadConfigFile(const std::string& path) { return LoadConfigSources({.file = path}); }

LoadResult LoadConfigSources(const ConfigSources& sources) {
  Config base;
  std::optional<std::string> text;
  if (sources.file.empty()) {
    const absl::StatusOr<Config> embedded = EmbeddedDefaultConfig(sources.user);
    if (!embedded.ok()) return {.errors = {std::string(embedded.status().message())}};
    base = *embedded;
  } else {
    text = ReadText(sources.file);
    if (!text.has_value()) return Unreadable(sources.file);
  }
  Loader loader(sources.file.empty() ? "built-in default" : sources.file, std::move(base));
  if (text.has_value()) loader.Read(*text);
  for (const ConfigSetting& setting : sources.settings) loader.Set(setting);
  LoadResult result = loader.Finish();
  result.warnings = sources.warnings;
  return result;
}

}  // namespace kvkeep
