// Computes a fast 128-bit digest against damage and mix-ups. It is not cryptographic: the cache's
// directories keep strangers out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lazyck::rt {

struct Digest {
    std::uint64_t low = 0;
    std::uint64_t high = 0;

    std::string hex() const;
    bool operator==(const Digest& other) const { return low == other.low && high == other.high; }
    bool operator!=(const Digest& other) const { return !(*this == other); }
};

Digest hash(const void* data, std::size_t size);
Digest hash(std::string_view text);

}  // namespace lazyck::rt
