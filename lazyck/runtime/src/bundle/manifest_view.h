// Reads a manifest in place. lazyck/formats/manifest.py describes the format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "lazyck_abi.h"
#include "platform/messages.h"

namespace lazyck::rt {

// Describes one blob: a row of the manifest. The pointers point into the manifest.
struct BlobRow {
    const char *name, *source, *digest;
    std::uint32_t recipe, first_symbol, symbol_count;
    const char* kernel;  // empty: a blob; else the host unit's name, a tab, and a line of its table
    std::uint32_t host_recipe;
    bool has_parts;
};

// Describes a part of a blob that is compiled by itself, as if it were a row of a manifest.
struct PartRow {
    std::string name, digest, kernel;  // as in BlobRow
    std::string symbol;                // the symbol of device code, or empty: the blob's
    std::uint32_t recipe = 0;
};

struct RecipeRow {
    std::string toolchain, toolchain_id, home;
    Strings home_env, compile, link;
    Strings env;  // name, value, name, value, ...
    Strings arch_flags, programs;
    std::string headers;
};

// Returns `text`, a name or a line with names, as device code spells it: without the part that
// makes a host unit's own names unique.
std::string device_name(std::string text);

// Returns the lines of a host unit's table (units/src/cuda_host.cpp) that describe device code, in
// the form that BlobRow has.
Strings lines_of_table(std::string_view table);

// Returns the private name of `symbol` in the library of that `tag`.
std::string private_name(std::string_view symbol, std::string_view tag);

class ManifestView {
 public:
    // Constructs a view of no manifest, which has no blobs.
    ManifestView() = default;
    // Checks the header, and that all tables lie inside `data`. Errors name the manifest as
    // `where`. Throws CompileError.
    ManifestView(const void* data, std::size_t size, std::string where);

    // Returns a manifest of the parts of blob `index`: its host unit, its whole device code, and
    // then the kernels in `lines` of its table, in order.
    ManifestView parts(std::uint32_t index, const Strings& lines) const;
    // Returns a manifest of a single kernel of blob `index`, which `line` describes.
    ManifestView kernel(std::uint32_t index, const std::string& line) const;
    // Returns a manifest of a single kernel of which only the name is known. It has no entry.
    ManifestView unknown_kernel(std::uint32_t index, const std::string& name) const;
    // Returns the name that an entry has for the symbol in a row of the table.
    std::string elf_name(std::string_view symbol) const;
    static constexpr std::uint32_t k_host_unit = 0, k_whole_device = 1, k_first_kernel = 2;
    bool has_parts(std::uint32_t index) const;

    std::uint32_t blob_count() const;
    std::uint32_t symbol_count() const { return m_header.symbols; }
    // Functions that read a row throw CompileError if the index is out of range or the row points
    // outside.
    BlobRow blob(std::uint32_t index) const;
    // Returns the symbols that an entry of the row has to define, by their names there.
    Strings symbols_of(const BlobRow& blob) const;
    // Returns whether calls reach the functions through slots. A part has no slots.
    bool has_slots() const { return m_parts == nullptr; }
    const char* symbol_name(std::uint32_t index) const;
    std::uint32_t symbol_blob(std::uint32_t index) const;
    // Returns the recipe that `recipe_here` gives for `index`.
    RecipeRow recipe(std::uint32_t index) const;
    // Returns the number of the recipe that is taken for recipe `index`: itself, unless this CPU
    // lacks features that it needs.
    std::uint32_t recipe_here(std::uint32_t index) const;
    // These return single columns of a recipe, for callers that need no more.
    const char* recipe_toolchain(std::uint32_t index) const;
    const char* recipe_toolchain_id(std::uint32_t index) const;
    bool has_arch_flags(std::uint32_t index) const;
    // Returns the archs that the sources of a recipe were built for, by their own commands.
    Strings recipe_archs(std::uint32_t index) const;

    const char* library() const { return string(m_header.library); }
    const char* file_name() const { return string(m_header.file_name); }
    const char* cache_name() const { return string(m_header.cache_name); }
    // Returns the name of the directory that holds the entries of the library's blobs in a cache.
    const char* shelf() const;
    const char* root() const { return string(m_header.root); }
    // Returns the archs that the whole build was asked for (--gpu-archs).
    Strings archs() const { return list(m_header.archs); }
    // Returns the private names of all functions and variables that blobs use under such a name.
    Strings private_names() const;
    // Returns what private names are made with.
    const char* private_tag() const { return string(m_header.private_tag); }
    // Returns the SHA-256 of the bundle's list of its contents, or an empty string if the bundle
    // was laid out by hand.
    const char* contents() const { return string(m_header.contents); }
    // Returns the digest of all that the build puts into the keys of the library's entries.
    const char* digest() const { return string(m_header.digest); }
    // Returns the machine that the library and its entries are for. It is this machine if the
    // manifest does not say.
    std::uint16_t machine() const { return m_machine; }

 private:
#define LAZYCK_COLUMN(name) std::uint32_t name;
    struct HeaderColumns {
        LAZYCK_MANIFEST_HEADER(LAZYCK_COLUMN)
    };
    struct BlobColumns {
        LAZYCK_MANIFEST_BLOB(LAZYCK_COLUMN)
    };
    struct SymbolColumns {
        LAZYCK_MANIFEST_SYMBOL(LAZYCK_COLUMN)
    };
    struct RecipeColumns {
        LAZYCK_MANIFEST_RECIPE(LAZYCK_COLUMN)
    };
#undef LAZYCK_COLUMN

    [[noreturn]] void fail_damaged(const char* what) const;
    void check_table(std::uint32_t at, std::uint32_t count, std::size_t row) const;
    template <typename Row>
    Row row(std::uint32_t table_at, std::uint32_t count, std::uint32_t index, const char* missing) const;
    BlobColumns blob_at(std::uint32_t index) const;
    SymbolColumns symbol_at(std::uint32_t index) const;
    RecipeColumns recipe_at(std::uint32_t index) const;
    BlobRow own_blob(std::uint32_t index) const;
    PartRow part(std::uint32_t index, const std::string& name, const std::string& line, const Strings& symbols) const;
    ManifestView with_parts(std::uint32_t index, std::vector<PartRow> rows) const;
    const char* string(std::uint32_t at) const;
    Strings list(std::uint32_t at) const;

    const unsigned char* m_data = nullptr;
    HeaderColumns m_header = {};
    std::uint16_t m_machine = 0;
    std::string m_where;
    std::uint32_t m_whole = 0;                            // the blob that the parts belong to
    std::shared_ptr<const std::vector<PartRow>> m_parts;  // null: the rows are the manifest's own
};

struct ManifestRow {
    const ManifestView& manifest;
    std::uint32_t index;

    BlobRow blob() const { return manifest.blob(index); }
};

// Returns the line of a host unit's table that describes the row. It begins with `*` for all
// kernels, and is empty for a blob.
std::string kernel_of(const BlobRow& blob);
// Returns the name of this host unit, or an empty string for a blob.
std::string host_unit_of(const BlobRow& blob);
// Returns whether the row is device code, without host code.
bool is_device_code(const BlobRow& blob);
// Returns the archs of each entry that the row has for `archs`. Device code has one for each arch.
// Host code, of which a process can have only one copy, has one for all of them.
std::vector<Strings> archs_of_entries(const BlobRow& blob, const Strings& archs);
Subject subject_of(const ManifestView& manifest, const BlobRow& blob, const std::string& arch_label);

}  // namespace lazyck::rt
