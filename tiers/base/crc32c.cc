#include "tiers/base/crc32c.h"

#ifdef __aarch64__
#include <sys/auxv.h>
#endif

#include <array>
#include <cstring>

namespace kvkeep {
namespace {

constexpr uint32_t kReversedPolynomial = 0x82f63b78;

constexpr std::array<uint32_t, 256> MakeCrcTable() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? kReversedPolynomial : 0);
    table[i] = crc;
  }
  return table;
}

// The instruction, and whether this processor has it.
#if defined(__x86_64__)
#define KVKEEP_HAS_CRC32C_CODE
#define KVKEEP_CRC32C_TARGET __attribute__((target("sse4.2")))
KVKEEP_CRC32C_TARGET uint32_t AddWord(uint32_t crc, uint64_t word) {
  return static_cast<uint32_t>(__builtin_ia32_crc32di(crc, word));
}
KVKEEP_CRC32C_TARGET uint32_t AddByte(uint32_t crc, std::byte byte) {
  return __builtin_ia32_crc32qi(crc, static_cast<unsigned char>(byte));
}
bool HasInstruction() { return __builtin_cpu_supports("sse4.2"); }
#elif defined(__aarch64__)
#define KVKEEP_HAS_CRC32C_CODE
#define KVKEEP_CRC32C_TARGET
// In assembly, as the compilers' names for these instructions differ.
uint32_t AddWord(uint32_t crc, uint64_t word) {
  asm(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(crc) : "r"(word));
  return crc;
}
uint32_t AddByte(uint32_t crc, std::byte byte) {
  asm(".arch_extension crc\n\tcrc32cb %w0, %w0, %w1"
      : "+r"(crc)
      : "r"(static_cast<uint32_t>(byte)));
  return crc;
}
bool HasInstruction() { return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0; }
#endif

#ifdef KVKEEP_HAS_CRC32C_CODE
KVKEEP_CRC32C_TARGET uint32_t Crc32cByInstruction(std::span<const std::byte> bytes,
                                                  uint32_t before) {
  uint32_t crc = ~before;
  while (bytes.size() >= sizeof(uint64_t)) {
    uint64_t word;
    std::memcpy(&word, bytes.data(), sizeof(word));
    crc = AddWord(crc, word);
    bytes = bytes.subspan(sizeof(word));
  }
  for (const std::byte byte : bytes) crc = AddByte(crc, byte);
  return ~crc;
}
#endif

}  // namespace

uint32_t Crc32cByTables(std::span<const std::byte> bytes, uint32_t before) {
  static constexpr std::array<uint32_t, 256> kTable = MakeCrcTable();
  uint32_t crc = ~before;
  for (const std::byte byte : bytes) {
    crc = (crc >> 8) ^ kTable[(crc ^ static_cast<uint32_t>(byte)) & 0xff];
  }
  return ~crc;
}

uint32_t Crc32c(std::span<const std::byte> bytes, uint32_t before) {
#ifdef KVKEEP_HAS_CRC32C_CODE
  static const bool has_instruction = HasInstruction();
  if (has_instruction) return Crc32cByInstruction(bytes, before);
#endif
  return Crc32cByTables(bytes, before);
}

}  // namespace kvkeep
