// Declares what _lazyck/postbuild/link/stubs.py defines in each lazy library.
#pragma once

#include <atomic>
#include <cstdint>

extern "C" {
extern __attribute__((visibility("hidden"))) std::atomic<void*> lazyck_slots[];
extern __attribute__((visibility("hidden"))) const std::uint32_t lazyck_slot_count;
extern __attribute__((visibility("hidden"))) const unsigned char lazyck_manifest[];
extern __attribute__((visibility("hidden"))) const unsigned char lazyck_manifest_end[];
}
