// Computes digests: SHA-256, and a faster one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lazyck::rt {

// A fast 128-bit digest against damage and mix-ups. It is not cryptographic: the cache's
// directories keep strangers out.
struct Digest {
    std::uint64_t low = 0;
    std::uint64_t high = 0;

    std::string hex() const;
    bool operator==(const Digest& other) const { return low == other.low && high == other.high; }
    bool operator!=(const Digest& other) const { return !(*this == other); }
};

Digest hash(const void* data, std::size_t size);
Digest hash(std::string_view text);

// Returns the 64 hexadecimal digits of SHA-256 (FIPS 180-4), for digests that the build makes with
// Python's hashlib.
std::string sha256_hex(const void* data, std::size_t size);

}  // namespace lazyck::rt
