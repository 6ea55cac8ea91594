// Reads the manifest of a lazy library: whatever bytes it is made of, every row reads or throws.
// The table of a blob's host unit follows it, and rows are made of that table too.
#include <cstring>

#include "bundle/manifest_view.h"
#include "error.hpp"

namespace {

std::size_t g_read;  // all that was read counts here, so that no read is left out

// Returns whether `read` succeeds. Throwing costs a hundred times what reading a row does, so a
// table is left at its first bad row.
template <typename Read>
bool attempt(Read read) {
    try {
        read();
        return true;
    } catch (const lazyck::CompileError&) {
        return false;
    }
}

void take(const std::string& text) { g_read += text.size(); }
void take(const lazyck::rt::Strings& texts) {
    for (const std::string& text : texts) take(text);
}

// Reads the rows of a view, and the symbols that each row is to define.
void read_blobs(const lazyck::rt::ManifestView& view) {
    using namespace lazyck::rt;
    // A table's size is bounded by the file's, so all rows can be read. The first rows are enough.
    for (std::uint32_t i = 0; i < view.blob_count() + 1 && i < 100; ++i) {
        const bool is_read = attempt([&] {
            const BlobRow row = view.blob(i);
            for (const char* text : {row.name, row.source, row.digest, row.kernel}) take(text);
            take(view.symbols_of(row));
        });
        if (!is_read) break;
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace lazyck::rt;
    attempt([&] {
        const ManifestView view(data, size, "fuzz");
        for (const auto text :
             {&ManifestView::library, &ManifestView::file_name, &ManifestView::cache_name, &ManifestView::root})
            attempt([&] { take((view.*text)()); });
        attempt([&] { take(view.archs()); });
        read_blobs(view);
        for (std::uint32_t i = 0; i < view.symbol_count() + 1 && i < 100; ++i) {
            if (!attempt([&] { g_read += view.symbol_blob(i); })) break;
        }
        for (std::uint32_t i = 0; i < 100; ++i) {
            const bool is_read = attempt([&] {
                const RecipeRow row = view.recipe(i);
                for (const std::string& text : {row.toolchain, row.toolchain_id, row.home}) take(text);
                for (const Strings& list : {row.home_env, row.compile, row.link, row.env, row.arch_flags}) take(list);
            });
            if (!is_read) break;
        }
        // A header's size is checked against the input's.
        std::uint32_t end;
        std::memcpy(&end, data + 12, sizeof end);
        const Strings lines = lines_of_table({reinterpret_cast<const char*>(data) + end, size - end});
        attempt([&] { read_blobs(view.parts(0, lines)); });
        for (const std::string& line : lines) attempt([&] { read_blobs(view.kernel(0, line)); });
    });
    return 0;
}
