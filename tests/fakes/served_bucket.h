// A FakeS3 behind sockets: the script of a ScriptedServer's connection.
#pragma once

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/fakes/fake_s3.h"
#include "tests/fakes/scripted_server.h"

namespace kvkeep {

// Changes an answer; or sends something else and returns false, which ends the connection.
using ServedChange =
    std::function<bool(const HttpRequest&, ScriptedAnswer& answer, ServedConnection&)>;

// FakeS3 behind a socket.
inline void ServeBucket(FakeS3& bucket, ServedConnection& connection,
                        const ServedChange& change = nullptr) {
  while (true) {
    const std::string head = connection.ReadHead();
    if (head.empty()) return;
    const std::vector<std::string> lines = absl::StrSplit(head, "\r\n", absl::SkipEmpty());
    const std::vector<std::string> first = absl::StrSplit(lines[0], ' ');
    HttpRequest request{.method = first[0], .url = first[1]};
    for (size_t i = 1; i < lines.size(); ++i) {
      const size_t colon = lines[i].find(": ");
      if (colon == std::string::npos) continue;
      request.headers.push_back({lines[i].substr(0, colon), lines[i].substr(colon + 2)});
    }
    if (!FindHeader(request.headers, "expect").empty()) {
      connection.Send("HTTP/1.1 100 Continue\r\n\r\n");
    }
    uint64_t bytes = 0;
    static_cast<void>(absl::SimpleAtoi(FindHeader(request.headers, "content-length"), &bytes));
    std::string body = connection.ReadBody(bytes);
    if (body.size() < bytes) return;
    ScriptedAnswer answer = bucket.Serve(request, std::move(body));
    if (change && !change(request, answer, connection)) return;
    std::string sent = absl::StrCat("HTTP/1.1 ", answer.status, " So\r\n");
    for (const auto& [name, value] : answer.headers) {
      absl::StrAppend(&sent, name, ": ", value, "\r\n");
    }
    if (answer.status != 204) {
      absl::StrAppend(&sent, "Content-Length: ", answer.body.size(), "\r\n");
    }
    if (!connection.Send(absl::StrCat(sent, "\r\n", answer.body))) return;
  }
}

}  // namespace kvkeep
