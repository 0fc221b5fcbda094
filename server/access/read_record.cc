#include "server/access/read_record.h"

#include <absl/strings/str_cat.h>

#include <utility>

namespace kvkeep {

ReadRecord::~ReadRecord() {
  for (auto& [key, count] : counts_) {
    if (count.chunks > 0) Say(key, count);
  }
}

std::string ReadRecord::NameOf(TenantId tenant) const {
  const std::string& name = tenant.value() < tenants_.size() ? tenants_[tenant.value()] : "";
  return name.empty() ? "default" : name;
}

void ReadRecord::Say(const Key& key, Count& count) const {
  const auto& [peer, reader, ns, owner] = key;
  log_->Always("audit",
               {{"call", "ReadOther"},
                {"who", peer},
                {"what", absl::StrCat("tenant ", NameOf(reader), " read ", count.chunks,
                                      " chunks, ", count.bytes, " bytes of payload, of tenant ",
                                      NameOf(owner), ", namespace ", ns.ToHex())},
                {"outcome", "OK"},
                {"unsaid", "0"}});
  count.chunks = count.bytes = 0;
}

void ReadRecord::Note(const std::vector<ForeignRead>& reads) {
  const MonotonicTime now = clock_->Now();
  for (const ForeignRead& read : reads) {
    const bool known = read.reader != nullptr;
    Key key{known ? read.reader->peer : "others", known ? read.reader->tenant : read.owner, read.ns,
            read.owner};
    if (counts_.size() >= kMost && !counts_.contains(key)) {
      key = {"others", read.owner, NamespaceDigest(), read.owner};
    }
    Count& count = counts_[key];
    count.chunks += read.chunks;
    count.bytes += read.bytes;
  }
  for (auto at = counts_.begin(); at != counts_.end();) {
    auto& [key, count] = *at;
    if (now < count.next_line) {
      ++at;
    } else if (count.chunks > 0) {
      Say(key, count);
      count.next_line = now + kLineEvery;
      ++at;
    } else {
      at = counts_.erase(at);  // read nothing for a minute: its next read is a first one
    }
  }
}

}  // namespace kvkeep
