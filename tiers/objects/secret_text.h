// SecretText: text of any length that nobody else may know, wiped from memory when it goes. Moved,
// never copied; there is no way to print one.
//
// (tiers/crypt/secret.h is the same of 32 bytes.)
#pragma once

#include <absl/strings/string_view.h>
#include <openssl/crypto.h>

#include <string>
#include <utility>

namespace kvkeep {

class SecretText {
 public:
  SecretText() = default;
  explicit SecretText(absl::string_view text) : text_(text) {}
  SecretText(SecretText&& other) noexcept : text_(other.text_) { other.Wipe(); }
  SecretText& operator=(SecretText&& other) noexcept {
    if (this == &other) return *this;
    Wipe();
    text_ = other.text_;
    other.Wipe();
    return *this;
  }
  ~SecretText() { Wipe(); }

  bool empty() const { return text_.empty(); }
  // Only for code that signs with it.
  absl::string_view reveal() const { return text_; }
  bool operator==(const SecretText& other) const { return text_ == other.text_; }

 private:
  void Wipe() {
    OPENSSL_cleanse(text_.data(), text_.size());
    text_.clear();
  }

  std::string text_;
};

}  // namespace kvkeep
