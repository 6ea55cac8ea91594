// Reads a manifest in place; the grammar stands in lazyck/manifest.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text.h"

namespace lazyck::rt {

// One blob's row. Pointers point into the manifest.
struct BlobRow {
    const char* name;
    const char* source;
    const char* digest;
    std::uint32_t recipe;
    std::uint32_t first_symbol;
    std::uint32_t symbol_count;
    const char* kernel;  // "": a blob; else the host unit's name, a tab, and a line of its table
    std::uint32_t host_recipe;
    bool has_parts;
};

// A part of a blob that is compiled by itself, as a row of a manifest.
struct PartRow {
    std::string name, digest, kernel;  // as in BlobRow
    std::string symbol;                // of device code; "": the blob's
    std::uint32_t recipe = 0;
};

struct RecipeRow {
    std::string toolchain;
    std::string toolchain_id;
    std::string home;
    Strings home_env;
    Strings compile;
    Strings link;
    Strings env;  // name, value, name, value, ...
    Strings arch_flags;
    Strings drop_env;
};

// A name, or a line with names, as device code has them: without what makes a host unit's own names unique.
std::string device_name(std::string text);

// The lines of a host unit's table (units/src/units.cpp) that describe device code, as BlobRow has them.
Strings lines_of_table(std::string_view table);

class ManifestView {
 public:
    // No manifest: no blobs.
    ManifestView() = default;
    // Checks the header and that all tables lie inside `data`; `where` names it in errors. Throws CompileError.
    ManifestView(const void* data, std::size_t size, std::string where);

    // A manifest of the parts of this one's blob `index`: its host unit, its whole device code, and then the kernels of
    // the `lines` of its table, in order.
    ManifestView parts(std::uint32_t index, const Strings& lines) const;
    // The same of a single kernel, by its line.
    ManifestView kernel(std::uint32_t index, const std::string& line) const;
    // The same of a kernel of which no more is known than its name: it has no entry.
    ManifestView unknown_kernel(std::uint32_t index, const std::string& name) const;
    static constexpr std::uint32_t k_host_unit = 0, k_whole_device = 1, k_first_kernel = 2;
    // Whether its blob `index` has parts.
    bool has_parts(std::uint32_t index) const;

    std::uint32_t blob_count() const;
    std::uint32_t symbol_count() const { return m_header.symbols; }
    // Rows throw CompileError when they are out of range or point outside.
    BlobRow blob(std::uint32_t index) const;
    // What an entry of the row has to define.
    Strings symbols_of(const BlobRow& blob) const;
    // Whether calls go by slots to its functions: a part has none.
    bool has_slots() const { return m_parts == nullptr; }
    const char* symbol_name(std::uint32_t index) const;
    std::uint32_t symbol_blob(std::uint32_t index) const;
    RecipeRow recipe(std::uint32_t index) const;
    // Single columns of a recipe, for those who need no more.
    const char* recipe_toolchain(std::uint32_t index) const;
    const char* recipe_toolchain_id(std::uint32_t index) const;
    bool has_arch_flags(std::uint32_t index) const;

    const char* library() const { return string(m_header.library); }
    const char* soname() const { return string(m_header.soname); }
    const char* cache_name() const { return string(m_header.cache_name); }
    // The name under which the entries of its blobs lie in a cache.
    const char* shelf() const;
    const char* root() const { return string(m_header.root); }
    Strings archs() const { return list(m_header.archs); }
    // Names of functions and variables with LAZYCK_PRIVATE_MARK and a tag behind them: so blobs call them.
    Strings private_names() const;
    // SHA-256 of the bundle's list of its contents; "": it was laid out by hand.
    const char* contents() const { return string(m_header.contents); }
    // The machine that the library and its entries are for; this one's own when the manifest leaves it open.
    std::uint16_t machine() const { return m_machine; }

 private:
    struct Header {
        std::uint32_t version, size;
        std::uint32_t blobs, symbols, recipes, words;
        std::uint32_t blobs_at, symbols_at, recipes_at, lists_at, strings_at, strings_size;
        std::uint32_t library, soname, cache_name, root, archs, eager, creator, digest, machine, private_names,
            contents;
    };

    [[noreturn]] void fail_damaged(const char* what) const;
    void check_table(std::uint32_t at, std::uint32_t count, std::size_t row) const;
    std::uint32_t number(std::size_t at) const;
    std::size_t recipe_at(std::uint32_t index) const;
    std::size_t blob_at(std::uint32_t index) const;
    BlobRow own_blob(std::uint32_t index) const;
    PartRow part(std::uint32_t index, const std::string& name, const std::string& line, const Strings& symbols) const;
    ManifestView with_parts(std::uint32_t index, std::shared_ptr<const std::vector<PartRow>> rows) const;
    const char* string(std::uint32_t at) const;
    Strings list(std::uint32_t at) const;

    const unsigned char* m_data = nullptr;
    Header m_header = {};
    std::uint16_t m_machine = 0;
    std::string m_where;
    std::uint32_t m_whole = 0;                            // the blob that these are parts of
    std::shared_ptr<const std::vector<PartRow>> m_parts;  // null: rows are the manifest's own
};

}  // namespace lazyck::rt
