// CRC-32C (Castagnoli, as iSCSI and S3's x-amz-checksum-crc32c have it): by the CPU's instruction
// where there is one. A pure function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace kvkeep {

// `before`: the checksum of what precedes these bytes; 0: nothing does.
uint32_t Crc32c(std::span<const std::byte> bytes, uint32_t before = 0);
// The same by tables, on any CPU.
uint32_t Crc32cByTables(std::span<const std::byte> bytes, uint32_t before = 0);

}  // namespace kvkeep
