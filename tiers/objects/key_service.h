// KeyService: asks a service for keys by HTTP, one question at a time, and waits for the answer.
//
// Keys come in plain over http, so a service by http is on this machine or its link: loopback
// addresses, and those that clouds give their metadata services. By https it may be anywhere.
//
// Ask is for one thread; Stop for any.
#pragma once

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "tiers/base/mutex.h"
#include "tiers/objects/http_engine.h"

namespace kvkeep {

// InvalidArgument says what is wrong with the URL that `name` holds.
absl::Status CheckKeyServiceUrl(absl::string_view name, absl::string_view url);

class KeyService {
 public:
  // Time limit of one answer, whatever the service does.
  static constexpr std::chrono::seconds kAnswerWithin{10};

  struct Answer {
    int status = 0;
    std::string text;  // a secret: wipe it
  };

  // `clock` outlives this.
  KeyService(std::unique_ptr<HttpEngine> http, const Clock* clock)
      : http_(std::move(http)), clock_(*clock) {}

  // An error is one of the way there; it holds no byte of question or answer.
  absl::StatusOr<Answer> Ask(HttpRequest request);
  // Cancels the question under way and every later one.
  void Stop();

 private:
  const std::unique_ptr<HttpEngine> http_;
  const Clock& clock_;
  Mutex mu_;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<HttpCall> call_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kvkeep
