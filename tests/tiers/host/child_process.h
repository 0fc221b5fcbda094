// Runs a piece of a test in a forked child: in a mount namespace of its own, or as another user.
//
// The child reports errors as text, and nothing else reaches the parent. An empty report means that
// all went well, so a test says: CHECK(RunInChild(...) == "").
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace kvkeep {

// The errors that a child found. Its lines are the report.
class Findings {
 public:
  // Adds `what` if `holds` is false. Returns `holds`.
  bool Expect(bool holds, const std::string& what);
  std::string ToString() const;

 private:
  std::vector<std::string> lines_;
};

// Runs `body` in a forked child and returns its findings, or how the child died.
std::string RunInChild(const std::function<void(Findings&)>& body);

// A temporary directory for one child in a mount namespace of its own.
struct MountRoom {
  std::string dir;       // plain directory of the test
  std::string writable;  // where a mount goes
  std::string readonly;  // where its bind mount goes

  // Mounts tmpfs with these options on `writable`, and a read-only bind mount of it on `readonly`.
  bool MountTmpfs(const std::string& options) const;
  bool MountHugetlbfs(const std::string& options) const;
  bool BindReadonly() const;
};

// Gives this process a mount namespace of its own, which children inherit: as root of the machine,
// or of a user namespace where ordinary users may have one. Returns false if neither is allowed.
// Call it before any thread.
bool EnterMountNamespace();

// As RunInChild, with a private mount namespace. Returns `kNotPermitted` if this machine allows
// none.
inline constexpr char kNotPermitted[] = "mount namespaces are not permitted here";
std::string RunInMountNamespace(const std::function<void(const MountRoom&, Findings&)>& body);

}  // namespace kvkeep
