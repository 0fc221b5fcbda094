// TestCa: a certificate authority of a test, which issues certificates as PEM files. Keys are
// P-256 and made anew; nothing here is fit for anything but tests. Not thread-safe.
#pragma once

#include <memory>
#include <string>
#include <vector>

struct evp_pkey_st;
struct x509_st;

namespace kvkeep {

// Files below the CA's directory. Keys have mode 0600.
struct CertificateFiles {
  std::string cert, key;
};

class TestCa {
 public:
  // `name` is of the CA and of its file, DIR/NAME.pem.
  TestCa(const std::string& dir, const std::string& name);
  ~TestCa();
  TestCa(const TestCa&) = delete;
  TestCa& operator=(const TestCa&) = delete;

  std::string cert_file() const { return dir_ + "/" + name_ + ".pem"; }

  struct Request {
    std::string name;       // of the subject and of the files
    std::string alt_names;  // as openssl writes them: "DNS:a.example,IP:127.0.0.1"; empty: none
    long serial = 1;
    long valid_from_s = -3600, valid_to_s = 24 * 3600;  // from now
  };
  // Replaces the files of one issued before under this name.
  CertificateFiles Issue(const Request& request) const;
  // Writes DIR/NAME.crl, which revokes these serials. The next CRL is due in `next_s` seconds.
  std::string Revoke(const std::vector<long>& serials, long next_s = 24 * 3600) const;

 private:
  const std::string dir_, name_;
  std::shared_ptr<evp_pkey_st> key_;
  std::shared_ptr<x509_st> certificate_;
};

}  // namespace kvkeep
