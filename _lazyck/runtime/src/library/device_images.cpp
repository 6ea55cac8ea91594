#include "library/device_images.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "base/failure.h"

namespace lazyck::rt {

namespace {

// The head of a fat binary. Behind it are the images of single archs, each with a head of its own,
// of `size` bytes in all.
struct FatBinary {
    std::uint32_t magic;
    std::uint16_t version, head_size;
    std::uint64_t size;
};
constexpr std::uint32_t k_fat_binary_magic = 0xba55ed50;

// An offload bundle begins with its mark and the number of its rows. A row is the place and the
// size of a code object, and its name, whose length comes first.
constexpr char k_bundle_mark[] = "__CLANG_OFFLOAD_BUNDLE__";
constexpr std::size_t k_bundle_mark_size = sizeof k_bundle_mark - 1;
constexpr std::size_t k_code_object_alignment = 4096;  // as in the bundles of HIP's own compilers

struct CodeObject {
    std::string name;
    const char* data;
    std::uint64_t size;
};

template <typename T>
T value_at(const void* place) {
    T value;
    std::memcpy(&value, place, sizeof value);
    return value;
}

bool is_fat_binary(const void* image) {
    const auto head = value_at<FatBinary>(image);
    return head.magic == k_fat_binary_magic && head.version == 1 && head.head_size == sizeof head;
}

bool is_bundle(const void* image) { return std::memcmp(image, k_bundle_mark, k_bundle_mark_size) == 0; }

// Returns `size` zeros at the beginning of a page, which are never given back.
char* lasting_pages(std::size_t size) {
    void* const made = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED) fail_system("cannot join device code for several archs", errno);
    return static_cast<char*>(made);
}

const void* join_fat_binaries(const std::vector<const void*>& images) {
    auto head = value_at<FatBinary>(images.front());
    head.size = 0;
    for (const void* const image : images) head.size += value_at<FatBinary>(image).size;
    char* const made = lasting_pages(sizeof head + head.size);
    std::memcpy(made, &head, sizeof head);
    char* at = made + sizeof head;
    for (const void* const image : images) {
        const std::uint64_t size = value_at<FatBinary>(image).size;
        std::memcpy(at, static_cast<const char*>(image) + sizeof head, size);
        at += size;
    }
    return made;
}

// Adds the code objects of a bundle. The host's row, which is empty, is the same in all bundles.
void add_code_objects(const void* bundle, std::vector<CodeObject>& all) {
    const char* const begin = static_cast<const char*>(bundle);
    const char* at = begin + k_bundle_mark_size;
    const auto count = value_at<std::uint64_t>(at);
    at += sizeof count;
    for (std::uint64_t i = 0; i < count; ++i) {
        const auto place = value_at<std::uint64_t>(at), size = value_at<std::uint64_t>(at + 8);
        const auto length = value_at<std::uint64_t>(at + 16);
        at += 24;
        if (size > 0 || all.empty()) all.push_back({std::string(at, length), begin + place, size});
        at += length;
    }
}

void append(std::string& text, std::uint64_t value) {
    text.append(reinterpret_cast<const char*>(&value), sizeof value);
}

std::uint64_t aligned(std::uint64_t size) {
    return (size + k_code_object_alignment - 1) / k_code_object_alignment * k_code_object_alignment;
}

const void* join_bundles(const std::vector<const void*>& images) {
    std::vector<CodeObject> all;
    for (const void* const image : images) add_code_objects(image, all);
    std::uint64_t place = k_bundle_mark_size + sizeof place;
    for (const CodeObject& each : all) place += 3 * sizeof place + each.name.size();
    std::string head(k_bundle_mark, k_bundle_mark_size);
    append(head, all.size());
    std::vector<std::uint64_t> places;
    for (const CodeObject& each : all) {
        places.push_back(aligned(place));
        place = places.back() + each.size;
        for (const std::uint64_t value : {places.back(), each.size, std::uint64_t{each.name.size()}})
            append(head, value);
        head += each.name;
    }
    char* const made = lasting_pages(place);
    std::memcpy(made, head.data(), head.size());
    for (std::size_t i = 0; i < all.size(); ++i) std::memcpy(made + places[i], all[i].data, all[i].size);
    return made;
}

}  // namespace

const void* join_images(const std::vector<const void*>& images) {
    if (std::all_of(images.begin(), images.end(), is_fat_binary)) return join_fat_binaries(images);
    if (std::all_of(images.begin(), images.end(), is_bundle)) return join_bundles(images);
    fail("lazyck: device code for several archs cannot be joined: it is of an unknown form");
}

}  // namespace lazyck::rt
