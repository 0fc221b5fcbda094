// ScopedEnvironment: sets (or, with null, unsets) a variable of the environment for one test.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>

namespace kvkeep::tools {

class ScopedEnvironment {
 public:
  ScopedEnvironment(const char* name, const char* value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    Set(value);
  }
  ~ScopedEnvironment() { Set(old_.has_value() ? old_->c_str() : nullptr); }
  ScopedEnvironment(const ScopedEnvironment&) = delete;
  ScopedEnvironment& operator=(const ScopedEnvironment&) = delete;

 private:
  void Set(const char* value) {
    if (value == nullptr) {
      unsetenv(name_);
    } else {
      setenv(name_, value, 1);
    }
  }
  const char* const name_;
  std::optional<std::string> old_;
};

}  // namespace kvkeep::tools
