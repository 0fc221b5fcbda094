// kvkeep-bare-drive: how fast a drive moves bytes that lie in as much memory as a cache has.
//
//   kvkeep-bare-drive read|overwrite|fill FILE BYTES SECONDS MEMORY_BYTES
//
// A loop on io_uring with O_DIRECT and nothing else: pieces of 1 MiB, 16 of them in the kernel,
// from or to registered shared memory, which it goes through from one end to the other. `read` and
// `overwrite` go through the first BYTES of FILE until SECONDS are over; `fill` makes the file,
// sets its space apart, writes BYTES once, and removes it. Prints bytes per second.
//
// fio moves the same few pieces of memory again and again. Where a drive is a virtual one, which
// its host copies, that memory stays in the caches; a cache's does not.
#include <fcntl.h>
#include <liburing.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

namespace {

constexpr uint64_t kPieceBytes = 1 << 20;
constexpr unsigned kDepth = 16;
constexpr uint64_t kMostRegisteredBytes = 1 << 30;  // the kernel's limit of one buffer

[[noreturn]] void Fail(const char* what, int error) {
  std::fprintf(stderr, "kvkeep-bare-drive: %s: %s\n", what, std::strerror(error));
  std::exit(1);
}

class Memory {
 public:
  explicit Memory(uint64_t bytes) : bytes_(bytes) {
    const int fd = memfd_create("kvkeep-bare-drive", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, static_cast<off_t>(bytes)) != 0) Fail("memory", errno);
    void* const at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) Fail("memory", errno);
    data_ = static_cast<std::byte*>(at);
    std::memset(data_, 1, bytes);
    close(fd);
  }

  void Register(io_uring* ring) const {
    std::vector<iovec> buffers;
    for (uint64_t at = 0; at < bytes_; at += kMostRegisteredBytes) {
      buffers.push_back({data_ + at, std::min(kMostRegisteredBytes, bytes_ - at)});
    }
    const int result = io_uring_register_buffers(ring, buffers.data(), buffers.size());
    if (result < 0) Fail("register memory", -result);
  }
  // Returns the next piece, and the registered buffer that it lies in.
  std::byte* Next(int* buffer) {
    if (next_ == bytes_) next_ = 0;
    *buffer = static_cast<int>(next_ / kMostRegisteredBytes);
    next_ += kPieceBytes;
    return data_ + next_ - kPieceBytes;
  }

 private:
  const uint64_t bytes_;
  std::byte* data_ = nullptr;
  uint64_t next_ = 0;
};

// Moves pieces until `seconds` are over, or once through the file. Returns bytes per second.
double Move(int fd, bool read, uint64_t bytes, double seconds, bool once, Memory* memory) {
  using Clock = std::chrono::steady_clock;
  io_uring ring = {};
  if (const int error = io_uring_queue_init(2 * kDepth, &ring, 0); error < 0) {
    Fail("io_uring", -error);
  }
  memory->Register(&ring);
  const auto begin = Clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  uint64_t next = 0, moved = 0;
  unsigned out = 0;
  while (true) {
    while (out < kDepth) {
      if (once ? next == bytes : elapsed() >= seconds) break;
      if (next == bytes) next = 0;
      io_uring_sqe* const sqe = io_uring_get_sqe(&ring);
      int buffer = 0;
      std::byte* const at = memory->Next(&buffer);
      read ? io_uring_prep_read_fixed(sqe, fd, at, kPieceBytes, next, buffer)
           : io_uring_prep_write_fixed(sqe, fd, at, kPieceBytes, next, buffer);
      next += kPieceBytes;
      ++out;
    }
    if (out == 0) break;
    io_uring_submit_and_wait(&ring, 1);
    io_uring_cqe* done = nullptr;
    while (io_uring_peek_cqe(&ring, &done) == 0) {
      if (done->res != static_cast<int>(kPieceBytes)) {
        Fail(read ? "read" : "write", done->res < 0 ? -done->res : EIO);
      }
      io_uring_cqe_seen(&ring, done);
      moved += kPieceBytes;
      --out;
    }
  }
  const double rate = static_cast<double>(moved) / elapsed();
  io_uring_queue_exit(&ring);
  return rate;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view way = argc == 6 ? argv[1] : "";
  if (way != "read" && way != "overwrite" && way != "fill") {
    std::fprintf(stderr,
                 "usage: kvkeep-bare-drive read|overwrite|fill FILE BYTES SECONDS MEMORY_BYTES\n");
    return 2;
  }
  const char* const path = argv[2];
  const uint64_t bytes = std::strtoull(argv[3], nullptr, 10) / kPieceBytes * kPieceBytes;
  const double seconds = std::strtod(argv[4], nullptr);
  const uint64_t memory_bytes = std::strtoull(argv[5], nullptr, 10) / kPieceBytes * kPieceBytes;
  if (bytes == 0 || memory_bytes < kDepth * kPieceBytes) {
    std::fprintf(stderr, "kvkeep-bare-drive: a file of 1 MiB and memory of 16 MiB are the least\n");
    return 2;
  }
  const bool fill = way == "fill";
  Memory memory(memory_bytes);
  const int fd = open(path, O_RDWR | O_DIRECT | O_CLOEXEC | (fill ? O_CREAT | O_EXCL : 0), 0600);
  if (fd < 0) Fail(path, errno);
  if (fill) {
    unlink(path);  // it goes with the descriptor
    if (const int error = posix_fallocate(fd, 0, static_cast<off_t>(bytes)); error != 0) {
      Fail(path, error);
    }
  }
  std::printf("%.0f\n", Move(fd, way == "read", bytes, seconds, fill, &memory));
  return 0;
}
