#include "server/sockets/socket_watch.h"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "server/sockets/acceptor.h"
#include "tests/fakes/scratch_dir.h"
#include "tests/server/other_user.h"
#include "tests/server/soon.h"

namespace kvkeep {
namespace {

// An acceptor whose socket is watched.
struct Watched {
  explicit Watched(mode_t mode = 0600) {
    acceptor = Acceptor::Open({{.path = path, .mode = mode}},
                              {.connected = [](Acceptor::Connection) {},
                               .failed = [](const absl::Status&) {}})
                   .value();
    acceptor->WatchBy(&watch);
  }
  ~Watched() { watch.ForgetAll(); }
  // Waits until there is one, as the acceptor's thread renews it.
  SocketWatch::News NextNews() {
    std::vector<SocketWatch::News> news;
    REQUIRE(Soon([&] {
      if (news.empty()) news = watch.TakeNews();
      return !news.empty();
    }));
    REQUIRE(news.size() == 1);
    return news[0];
  }

  const ScratchDir dir;
  const std::string path = dir / "sub/a";
  SocketWatch watch;
  std::unique_ptr<Acceptor> acceptor;
};

}  // namespace

TEST_CASE("a socket whose file or directory goes is put at its path again, with its mode") {
  Watched watched(0640);
  watched.watch.Look();
  CHECK(watched.watch.TakeNews().empty());
  for (const bool all : {false, true, false}) {
    std::filesystem::remove_all(all ? watched.dir / "sub" : watched.path);
    CHECK_FALSE(ConnectTo(watched.path).valid());
    watched.watch.Look();
    const SocketWatch::News news = watched.NextNews();
    CHECK(news.path == watched.path);
    CHECK(news.status.ok());
    CHECK(ConnectTo(watched.path).valid());
    CHECK(watched.watch.lost() == 0);
    struct stat info {};
    REQUIRE(stat(watched.path.c_str(), &info) == 0);
    CHECK((info.st_mode & 0777) == 0640);
  }
  CHECK(watched.watch.renewals() == 3);
  watched.watch.ForgetAll();
  watched.acceptor.reset();
  CHECK_FALSE(std::filesystem::exists(watched.path));
}

TEST_CASE("a path that cannot be had is lost, said once, and had again when it is free") {
  Watched watched;
  // The path is never free, as the acceptor's thread would take it.
  const std::string other_path = watched.dir / "other";
  absl::StatusOr<UniqueFd> other = absl::NotFoundError("nobody");  // else it is stale, and taken
  SECTION("something else is there") {
    std::ofstream(other_path) << "precious";
    std::filesystem::rename(other_path, watched.path);
  }
  SECTION("another daemon listens there, whatever its type of socket") {
    const int type = GENERATE(SOCK_STREAM, SOCK_SEQPACKET);
    other = ListenOnUnixSocket({.path = other_path}, type);
    REQUIRE(other.ok());
    std::filesystem::rename(other_path, watched.path);
    watched.watch.Look();
    const SocketWatch::News news = watched.NextNews();
    CHECK(absl::IsUnavailable(news.status));
    CHECK(news.status.message().find("in use by another daemon") != std::string::npos);
    struct stat before {}, after {};
    REQUIRE(stat(watched.path.c_str(), &before) == 0);
    watched.acceptor->Post([] {});
    watched.watch.Look();
    REQUIRE(stat(watched.path.c_str(), &after) == 0);
    CHECK(before.st_ino == after.st_ino);
  }
  CHECK(Soon([&] {
    watched.watch.Look();
    return watched.watch.lost() == 1;
  }));
  std::filesystem::remove(watched.path);
  CHECK(Soon([&] {
    watched.watch.Look();
    return watched.watch.lost() == 0 && ConnectTo(watched.path).valid();
  }));
  CHECK(watched.watch.renewals() == 1);
  std::vector<SocketWatch::News> news = watched.watch.TakeNews();
  REQUIRE_FALSE(news.empty());
  CHECK(news.back().status.ok());
  CHECK(news.size() <= 2);
}

}  // namespace kvkeep
