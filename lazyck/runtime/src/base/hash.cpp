#include "base/hash.h"

#include <cstring>

#include "machine/sha256.h"

namespace lazyck::rt {

namespace {

// Eight independent lanes of one multiplication per eight bytes keep the multiplier busy (the idea
// of xxHash's and wyhash's lanes). Every step is a bijection of the lane for a given input, and of
// the input for a given lane. So a single changed word always changes its lane.
constexpr std::size_t k_lanes = 8;
constexpr std::uint64_t k_prime = 0x9e3779b97f4a7c15;  // 2^64 / golden ratio, odd
constexpr std::uint64_t k_other_prime = 0xd6e8feb86659fd93;

void append_hex(std::string& out, std::uint64_t value, int digits) {
    for (int i = digits - 1; i >= 0; --i) out += "0123456789abcdef"[(value >> 4 * i) & 15];
}

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

constexpr std::size_t k_sha256_block = 64;

constexpr std::uint32_t k_rounds[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

std::uint32_t rotate32(std::uint32_t x, unsigned by) { return (x >> by) | (x << (32 - by)); }

inline void one_round(std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t& d, std::uint32_t e,
                      std::uint32_t f, std::uint32_t g, std::uint32_t& h, std::uint32_t input) {
    const std::uint32_t choice = g ^ (e & (f ^ g)), majority = (a & b) | (c & (a | b));
    const std::uint32_t one = h + (rotate32(e, 6) ^ rotate32(e, 11) ^ rotate32(e, 25)) + choice + input;
    d += one;
    h = one + (rotate32(a, 2) ^ rotate32(a, 13) ^ rotate32(a, 22)) + majority;
}

void absorb_sha256(std::uint32_t (&state)[8], const unsigned char* block) {
    std::uint32_t w[64];
    for (std::size_t i = 0; i < 16; ++i) {
        w[i] = std::uint32_t{block[4 * i]} << 24 | std::uint32_t{block[4 * i + 1]} << 16 |
               std::uint32_t{block[4 * i + 2]} << 8 | std::uint32_t{block[4 * i + 3]};
    }
    for (std::size_t i = 16; i < 64; ++i) {
        const std::uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + (rotate32(a, 7) ^ rotate32(a, 18) ^ (a >> 3)) + w[i - 7] +
               (rotate32(b, 17) ^ rotate32(b, 19) ^ (b >> 10));
    }
    auto [a, b, c, d, e, f, g, h] = state;
    // The variables change places instead of values, which is four times as fast.
    for (std::size_t i = 0; i < 64; i += 8) {
        one_round(a, b, c, d, e, f, g, h, k_rounds[i] + w[i]);
        one_round(h, a, b, c, d, e, f, g, k_rounds[i + 1] + w[i + 1]);
        one_round(g, h, a, b, c, d, e, f, k_rounds[i + 2] + w[i + 2]);
        one_round(f, g, h, a, b, c, d, e, k_rounds[i + 3] + w[i + 3]);
        one_round(e, f, g, h, a, b, c, d, k_rounds[i + 4] + w[i + 4]);
        one_round(d, e, f, g, h, a, b, c, k_rounds[i + 5] + w[i + 5]);
        one_round(c, d, e, f, g, h, a, b, k_rounds[i + 6] + w[i + 6]);
        one_round(b, c, d, e, f, g, h, a, k_rounds[i + 7] + w[i + 7]);
    }
    const std::uint32_t sums[8] = {a, b, c, d, e, f, g, h};
    for (std::size_t i = 0; i < 8; ++i) state[i] += sums[i];
}

void absorb_all_sha256(std::uint32_t (&state)[8], const unsigned char* at, std::size_t blocks) {
    if (machine::absorb_sha256(state, k_rounds, at, blocks)) return;
    for (; blocks > 0; --blocks, at += k_sha256_block) absorb_sha256(state, at);
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
    std::string out;
    for (const std::uint64_t half : {high, low}) append_hex(out, half, 16);
    return out;
}

std::string sha256_hex(const void* data, std::size_t size) {
    std::uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                              0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    const auto* at = static_cast<const unsigned char*>(data);
    const std::size_t left = size % k_sha256_block;
    absorb_all_sha256(state, at, size / k_sha256_block);
    at += size - left;
    unsigned char tail[2 * k_sha256_block] = {};
    if (left > 0) std::memcpy(tail, at, left);
    tail[left] = 0x80;
    const std::size_t end = left + 9 <= k_sha256_block ? k_sha256_block : 2 * k_sha256_block;
    for (std::size_t i = 0; i < 8; ++i)
        tail[end - 1 - i] = static_cast<unsigned char>(std::uint64_t{size} * 8 >> 8 * i);
    absorb_all_sha256(state, tail, end / k_sha256_block);
    std::string hex;
    for (const std::uint32_t word : state) append_hex(hex, word, 8);
    return hex;
}

}  // namespace lazyck::rt
