#include "tiers/policy/admission_policy.h"

#include <algorithm>

#include "tiers/base/check.h"
#include "tiers/policy/ghosts.h"

namespace kvkeep {
namespace {

class AdmitAll final : public AdmissionPolicy {
 public:
  absl::string_view name() const override { return "all"; }
  bool Admit(Fingerprint /*chunk*/, uint64_t /*bytes*/, MonotonicTime /*now*/) override {
    return true;
  }
};

class AdmitSecondUse final : public AdmissionPolicy {
 public:
  explicit AdmitSecondUse(const AdmissionOptions& options)
      : most_(std::max(1u, options.remembered_chunks)), offered_(most_ + 1, options.toucher) {}
  absl::string_view name() const override { return "second_use"; }
  bool Admit(Fingerprint chunk, uint64_t /*bytes*/, MonotonicTime /*now*/) override {
    if (offered_.Take(chunk).has_value()) return true;
    offered_.Add(0, chunk);
    if (offered_.size(0) > most_) offered_.DropOldest(0);
    return false;
  }

 private:
  const uint32_t most_;
  Ghosts offered_;
};

// `saved_` may go below 0, as one chunk may be larger than all that can be saved. Time pays it
// back.
class AdmitInBudget final : public AdmissionPolicy {
 public:
  explicit AdmitInBudget(const AdmissionOptions& options)
      : per_second_(options.bytes_per_second), saved_(per_second_ * kSavedSeconds) {
    KVKEEP_CHECK(per_second_ > 0);
  }
  absl::string_view name() const override { return "write_budget"; }
  bool Admit(Fingerprint /*chunk*/, uint64_t bytes, MonotonicTime now) override {
    Save(now);
    if (saved_ <= 0) return false;
    saved_ -= static_cast<double>(bytes);
    return true;
  }
  void OnWritten(uint64_t bytes, MonotonicTime now) override {
    Save(now);
    saved_ -= static_cast<double>(bytes);
  }
  // The next call caps the saved bytes at an hour of the new rate.
  void SetBytesPerSecond(double rate) override {
    KVKEEP_CHECK(rate > 0);
    per_second_ = rate;
  }

 private:
  static constexpr double kSavedSeconds = 3600;

  void Save(MonotonicTime now) {
    const double seconds = std::chrono::duration<double>(now - last_).count();
    saved_ = std::min(per_second_ * kSavedSeconds, saved_ + seconds * per_second_);
    last_ = now;
  }

  double per_second_;
  double saved_;           // below 0: owed
  MonotonicTime last_{0};  // before that, it is full anyway
};

}  // namespace

std::unique_ptr<AdmissionPolicy> MakeAdmissionPolicy(absl::string_view name,
                                                     const AdmissionOptions& options) {
  if (name == "all") return std::make_unique<AdmitAll>();
  if (name == "second_use") return std::make_unique<AdmitSecondUse>(options);
  if (name == "write_budget") return std::make_unique<AdmitInBudget>(options);
  return nullptr;
}

std::vector<std::string> AdmissionPolicyNames() { return {"all", "second_use", "write_budget"}; }

double EnduranceBytesPerSecond(double terabytes_written, double years) {
  return terabytes_written * 1e12 / (years * 365.25 * 24 * 3600);
}

}  // namespace kvkeep
