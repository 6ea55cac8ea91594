// Eight independent lanes of one multiplication per eight bytes keep the multiplier busy (the idea
// of xxHash's and wyhash's lanes). Every step is a bijection of the lane for a given input, and of
// the input for a given lane. So a single changed word always changes its lane.
#include "base/hash.h"

#include <cstring>

namespace lazyck::rt {

namespace {

constexpr std::size_t k_lanes = 8;
constexpr std::uint64_t k_prime = 0x9e3779b97f4a7c15;  // 2^64 / golden ratio, odd
constexpr std::uint64_t k_other_prime = 0xd6e8feb86659fd93;

std::uint64_t rotate(std::uint64_t x, unsigned by) { return (x << by) | (x >> (64 - by)); }

// The finalizer of SplitMix64 (Stafford's variant 13): every input bit reaches every output bit.
std::uint64_t avalanche(std::uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

void absorb(std::uint64_t (&lanes)[k_lanes], const unsigned char* block) {
    for (std::size_t i = 0; i < k_lanes; ++i) {
        std::uint64_t word;
        std::memcpy(&word, block + 8 * i, sizeof word);
        lanes[i] = rotate((lanes[i] ^ word) * k_prime, 29);
    }
}

}  // namespace

Digest hash(const void* data, std::size_t size) {
    const auto* at = static_cast<const unsigned char*>(data);
    std::uint64_t lanes[k_lanes];
    for (std::size_t i = 0; i < k_lanes; ++i) lanes[i] = avalanche(i + 1);
    std::size_t left = size;
    for (; left >= 8 * k_lanes; left -= 8 * k_lanes, at += 8 * k_lanes) absorb(lanes, at);
    unsigned char last[8 * k_lanes] = {};
    if (left > 0) std::memcpy(last, at, left);
    absorb(lanes, last);
    Digest digest{size * k_prime, size * k_other_prime};
    for (std::size_t i = 0; i < k_lanes; ++i) {
        digest.low = avalanche(digest.low ^ lanes[i]) * k_prime;
        digest.high = avalanche(digest.high + rotate(lanes[i], 17)) * k_other_prime;
    }
    digest.low = avalanche(digest.low);
    digest.high = avalanche(digest.high);
    return digest;
}

Digest hash(std::string_view text) { return hash(text.data(), text.size()); }

std::string Digest::hex() const {
    static constexpr char k_digits[] = "0123456789abcdef";
    std::string out;
    for (const std::uint64_t half : {high, low}) {
        for (int shift = 60; shift >= 0; shift -= 4) out += k_digits[(half >> shift) & 15];
    }
    return out;
}

}  // namespace lazyck::rt
