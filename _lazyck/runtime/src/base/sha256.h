// Computes SHA-256 (FIPS 180-4), for digests that the build makes with Python's hashlib.
#pragma once

#include <cstddef>
#include <string>

namespace lazyck::rt {

// Returns 64 hexadecimal digits.
std::string sha256_hex(const void* data, std::size_t size);

}  // namespace lazyck::rt
