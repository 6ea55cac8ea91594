#include "base/hash.h"

#include <set>

#include "unit_support.h"

namespace lazyck::rt {

TEST_CASE("a digest never changes, because caches are named by it") {
    std::string text;
    for (int i = 0; i < 300; ++i) text += static_cast<char>('a' + i % 26);
    const struct {
        unsigned size;
        const char* digest;
    } known[] = {
        {0, "92bdb53fdb80ebe803e694b786fd4197"},   {1, "d5e85fe432e555ffac7358f36d2fa2a9"},
        {8, "6046f78b8cdecabab2e471cc51df0e3c"},   {63, "07764cc8b79c7643c8a761d897da1df0"},
        {64, "89dec73dd06ffc5ce21773ddc1553d2c"},  {65, "89217b29a3d2679a9827942007fecc97"},
        {128, "50beb2e78cedecb3c5a6a3de198a41d8"}, {200, "f72245e0a5c75f78ce2043debd571392"},
        {300, "14acc53f0c0f72743ddcdc8a7c42f18e"},
    };
    for (const auto& each : known) CHECK(hash(std::string_view(text).substr(0, each.size)).hex() == each.digest);
}

TEST_CASE("digests are equal if both halves are") {
    CHECK(Digest{1, 2} == Digest{1, 2});
    CHECK(Digest{1, 2} != Digest{1, 3});
    CHECK(Digest{1, 2} != Digest{0, 2});
}

TEST_CASE("every byte of a text counts, and so does its length") {
    std::set<std::string> seen;
    const std::string plain(130, '\0');
    for (std::size_t i = 0; i < plain.size(); ++i) {
        std::string changed = plain;
        changed[i] = 1;
        seen.insert(hash(changed).hex());
        seen.insert(hash(std::string_view(plain).substr(0, i)).hex());
    }
    CHECK(seen.size() == 260);
}

TEST_CASE("SHA-256 is that of the standard") {
    CHECK(sha256_hex("", 0) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    CHECK(sha256_hex("abc", 3) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    const std::string million(1000000, 'a');
    CHECK(sha256_hex(million.data(), million.size()) ==
          "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

}  // namespace lazyck::rt
