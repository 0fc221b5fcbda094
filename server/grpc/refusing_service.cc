#include "server/grpc/refusing_service.h"

#include <absl/strings/string_view.h>

#include <string>

namespace kvkeep {
namespace {

constexpr size_t kMaxRefused = 64;

class Refusal final : public grpc::ServerGenericBidiReactor {
 public:
  explicit Refusal(const grpc::Status& status) { Finish(status); }
  void OnDone() override { delete this; }
};

}  // namespace

bool RefusingService::Add(int fd, const absl::Status& reason) {
  return reasons_.Add(fd, {{"", kMaxRefused}}, reason);
}

grpc::ServerGenericBidiReactor* RefusingService::CreateReactor(
    grpc::GenericCallbackServerContext* context) {
  const absl::Status reason =
      reasons_.Find(context->peer()).value_or(absl::PermissionDeniedError("not allowed here"));
  return new Refusal(
      grpc::Status(static_cast<grpc::StatusCode>(reason.code()), std::string(reason.message())));
}

}  // namespace kvkeep
