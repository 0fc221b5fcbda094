// TuneMallocForPayloads: glibc settings for a process that moves chunks through gRPC.
//
// gRPC receives into freshly allocated memory; by default glibc gives megabyte blocks back to the
// kernel at once, and every gigabyte costs some 120,000 page faults. Keeping them about doubles
// the rate of gets. The price is memory of up to 1 GiB that stays with the process, so the library
// never does this by itself: a program that wants it calls it first thing in main.
#pragma once

namespace kvkeep::client {

void TuneMallocForPayloads();

}  // namespace kvkeep::client
