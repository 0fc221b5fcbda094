#include "tests/fakes/cuda/settings.h"

#include <sys/stat.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "tiers/base/mutex.h"

namespace kvkeep::fakecuda {
namespace {

[[noreturn]] void Unreadable(const std::string& line) {
  std::fprintf(stderr, "fake libcuda: setting not understood: '%s'\n", line.c_str());
  std::abort();
}

void ParseLine(const std::string& line, Settings* settings) {
  std::istringstream in(line);
  std::string key, word;
  if (!(in >> key) || key[0] == '#') return;
  bool good = true;
  if (key == "version") {
    good = static_cast<bool>(in >> settings->version);
  } else if (key == "devices") {
    good = static_cast<bool>(in >> settings->devices);
  } else if (key == "memory_bytes") {
    good = static_cast<bool>(in >> settings->memory_bytes);
  } else if (key == "read_only_register") {
    good = static_cast<bool>(in >> settings->read_only_register);
  } else if (key == "mig") {
    good = static_cast<bool>(in >> settings->mig);
  } else if (key == "strict") {
    good = static_cast<bool>(in >> settings->strict);
  } else if (key == "sticky") {
    good = static_cast<bool>(in >> settings->sticky);
  } else if (key == "copy_delay_us") {
    good = static_cast<bool>(in >> settings->copy_delay_us);
  } else if (key == "batch_limit") {
    good = static_cast<bool>(in >> settings->batch_limit);
  } else if (key == "hang") {
    good = static_cast<bool>(in >> word);
    settings->hangs.insert(word);
  } else if (key == "missing") {
    good = static_cast<bool>(in >> word);
    settings->missing.insert(word);
  } else if (key == "fail") {
    Failure failure;
    good = static_cast<bool>(in >> failure.name >> failure.error);
    if (in >> failure.skip) in >> failure.times;
    settings->failures.push_back(failure);
  } else {
    good = false;
  }
  if (!good) Unreadable(line);
}

struct Seen {
  ino_t inode = 0;
  int64_t changed_ns = 0;
  bool operator==(const Seen&) const = default;
};

struct Cache {
  Mutex mu;
  Seen seen ABSL_GUARDED_BY(mu);
  std::shared_ptr<const Settings> settings ABSL_GUARDED_BY(mu) = std::make_shared<const Settings>();
};

}  // namespace

std::shared_ptr<const Settings> CurrentSettings() {
  static Cache* const cache = new Cache();
  static const char* const path = std::getenv("KVKEEP_FAKE_CUDA");
  struct stat status = {};
  // One reader at a time: a test's file is small, and the fake's speed does not matter.
  MutexLock lock(&cache->mu);
  if (path == nullptr || stat(path, &status) != 0) return cache->settings;
  const Seen now = {.inode = status.st_ino,
                    .changed_ns = status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec};
  if (now == cache->seen) return cache->settings;
  cache->seen = now;
  auto read = std::make_shared<Settings>();
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) ParseLine(line, read.get());
  cache->settings = read;
  return read;
}

}  // namespace kvkeep::fakecuda
