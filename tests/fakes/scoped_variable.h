// ScopedVariable: sets an environment variable for its own lifetime.
#pragma once

#include <cstdlib>
#include <string>

namespace kvkeep {

class ScopedVariable {
 public:
  // `name` outlives it.
  ScopedVariable(const char* name, const std::string& value) : name_(name) {
    setenv(name, value.c_str(), /*overwrite=*/1);
  }
  ~ScopedVariable() { unsetenv(name_); }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

 private:
  const char* const name_;
};

}  // namespace kvkeep
