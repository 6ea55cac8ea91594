#include "bundle/manifest_view.h"

#include <cstring>

#include "base/failure.h"
#include "base/hash.h"
#include "lazyck_abi.h"
#include "platform/cpu.h"
#include "platform/elf_view.h"

namespace lazyck::rt {

namespace {

constexpr std::size_t k_magic_size = sizeof LAZYCK_MANIFEST_MAGIC - 1;
constexpr std::size_t k_longest_name = 60;
constexpr std::size_t k_name_digits = 8;
constexpr std::size_t k_longest_list = 16 << 20;  // bytes; Linux accepts a few megabytes

// Returns a short name for a kernel: the name of its function, and some digits of a digest of the
// symbol.
std::string kernel_name(const std::string& symbol) {
    constexpr std::string_view k_unnamed = "(anonymous namespace)::";
    std::string spelled = readable(symbol);
    for (std::size_t at; (at = spelled.find(k_unnamed)) != std::string::npos;) spelled.erase(at, k_unnamed.size());
    std::string_view name = spelled;
    name = name.substr(0, name.find_first_of("<("));
    name.remove_prefix(name.find_last_of(": ") == std::string_view::npos ? 0 : name.find_last_of(": ") + 1);
    return safe_name(name.substr(0, k_longest_name)) + "-" + hash(symbol).hex().substr(0, k_name_digits);
}

// Returns whether the stub of a symbol has a private name.
bool is_private(std::string_view symbol) {
    constexpr std::string_view k_mark = LAZYCK_PRIVATE_MARK;
    return symbol.size() > k_mark.size() && symbol.substr(symbol.size() - k_mark.size()) == k_mark;
}

std::string symbol_in(const std::string& line) { return line.substr(0, line.find('\t')); }

}  // namespace

std::string device_name(std::string text) {
    constexpr std::string_view k_mark = LAZYCK_MODULE_ID;
    for (std::size_t at = 0; (at = text.find(k_mark, at)) != std::string::npos;) {
        at += k_mark.size();
        const std::size_t end = std::min(text.find_first_not_of("0123456789abcdef", at), text.size());
        if (end - at >= LAZYCK_MODULE_ID_DIGITS)
            text.replace(at, LAZYCK_MODULE_ID_DIGITS, LAZYCK_MODULE_ID_DIGITS, '0');
    }
    return text;
}

Strings lines_of_table(std::string_view table) {
    Strings lines;
    std::string state;
    for (const std::string& row : split(table, "\n")) {
        const std::size_t tab = row.find('\t');
        if (tab == std::string::npos) continue;
        const std::string kind = row.substr(0, tab), rest = row.substr(tab + 1);
        if (kind == LAZYCK_TABLE_KERNEL || kind == LAZYCK_TABLE_WHOLE) lines.push_back(device_name(rest));
        if (kind == LAZYCK_TABLE_VARIABLE) state += "\t" + device_name(rest);
    }
    for (std::string& line : lines) {
        if (line[0] != '*') line += state;
    }
    return lines;
}

ManifestView::ManifestView(const void* data, std::size_t size, std::string where)
    : m_data(static_cast<const unsigned char*>(data)), m_where(std::move(where)) {
    if (size < k_magic_size + sizeof m_header || std::memcmp(data, LAZYCK_MANIFEST_MAGIC, k_magic_size) != 0) {
        fail("lazyck: " + m_where + ": not a lazyck manifest");
    }
    std::memcpy(&m_header, m_data + k_magic_size, sizeof m_header);
    if (m_header.version != LAZYCK_MANIFEST_VERSION) {
        fail("lazyck: " + m_where + ": manifest version " + std::to_string(m_header.version) + ", this runtime reads " +
             std::to_string(LAZYCK_MANIFEST_VERSION) + "; use the lazyck that wrote it, or build it again");
    }
    if (m_header.size > size) fail_damaged("cut short");
    check_table(m_header.blobs_at, m_header.blobs, sizeof(BlobColumns));
    check_table(m_header.symbols_at, m_header.symbols, sizeof(SymbolColumns));
    check_table(m_header.recipes_at, m_header.recipes, sizeof(RecipeColumns));
    check_table(m_header.lists_at, m_header.words, 4);
    check_table(m_header.strings_at, m_header.strings_size, 1);
    // The last byte of the pool is a NUL, so every offset inside the pool is a terminated string.
    if (m_header.strings_size == 0 || m_data[m_header.strings_at + m_header.strings_size - 1] != 0) {
        fail_damaged("its strings have no end");
    }
    const std::string machine = string(m_header.machine);
    m_machine = machine.empty() ? own_machine() : machine_of(machine);
    if (m_machine == 0) fail("lazyck: " + m_where + ": for machine '" + machine + "', which this lazyck does not know");
}

void ManifestView::fail_damaged(const char* what) const {
    fail("lazyck: " + m_where + ": damaged manifest (" + what + "); copy or build it again");
}

void ManifestView::check_table(std::uint32_t at, std::uint32_t count, std::size_t row) const {
    if (at > m_header.size || count > (m_header.size - at) / row) fail_damaged("a table lies outside");
}

template <typename Row>
Row ManifestView::row(std::uint32_t table_at, std::uint32_t count, std::uint32_t index, const char* missing) const {
    if (index >= count) fail_damaged(missing);
    Row row;
    std::memcpy(&row, m_data + table_at + sizeof row * index, sizeof row);
    return row;
}

const char* ManifestView::string(std::uint32_t at) const {
    if (m_data == nullptr) return "";
    if (at >= m_header.strings_size) fail_damaged("a string lies outside");
    return reinterpret_cast<const char*>(m_data) + m_header.strings_at + at;
}

Strings ManifestView::list(std::uint32_t at) const {
    Strings out;
    if (m_data == nullptr) return out;
    const auto word = [&](std::uint32_t index) {
        return row<std::uint32_t>(m_header.lists_at, m_header.words, index, "a list lies outside");
    };
    const std::uint32_t count = word(at);
    if (count > m_header.words - at - 1) fail_damaged("a list has no end");
    std::size_t size = 0;
    for (std::uint32_t i = 1; i <= count; ++i) {
        out.emplace_back(string(word(at + i)));
        size += out.back().size() + 1;
        // Words may share a string, so a small file could expand to terabytes.
        if (size > k_longest_list) fail_damaged("a list is longer than any command");
    }
    return out;
}

std::uint32_t ManifestView::blob_count() const {
    return m_parts ? static_cast<std::uint32_t>(m_parts->size()) : m_header.blobs;
}

BlobRow ManifestView::blob(std::uint32_t index) const {
    if (!m_parts) return own_blob(index);
    if (index >= m_parts->size()) fail_damaged("no such part");
    const PartRow& part = (*m_parts)[index];
    BlobRow row = own_blob(m_whole);
    row.name = part.name.c_str();
    row.digest = part.digest.c_str();
    row.kernel = part.kernel.c_str();
    row.recipe = part.recipe;
    row.has_parts = false;
    return row;
}

ManifestView::BlobColumns ManifestView::blob_at(std::uint32_t index) const {
    return row<BlobColumns>(m_header.blobs_at, m_header.blobs, index, "no such blob");
}

BlobRow ManifestView::own_blob(std::uint32_t index) const {
    const BlobColumns own = blob_at(index);
    const BlobRow row{string(own.name),   string(own.source), string(own.digest),
                      own.recipe,         own.first_symbol,   own.symbol_count,
                      string(own.kernel), own.host_recipe,    string(own.units)[0] != '\0'};
    if (row.first_symbol > m_header.symbols || row.symbol_count > m_header.symbols - row.first_symbol) {
        fail_damaged("a blob's symbols lie outside");
    }
    return row;
}

bool ManifestView::has_parts(std::uint32_t index) const { return !m_parts && own_blob(index).has_parts; }

// Returns the row of a part. With `symbols`, the part is device code that defines them, `line`
// describes it, and the first symbol is the one to look up. Without `symbols`, the part is the host
// unit.
PartRow ManifestView::part(std::uint32_t index, const std::string& name, const std::string& line,
                           const Strings& symbols) const {
    const BlobRow blob = own_blob(index);
    const BlobColumns columns = blob_at(index);
    const std::string own = std::string(blob.digest) + " " + string(columns.units) + " ";
    PartRow row;
    row.name = std::string(blob.name) + "." + name;
    row.digest = hash(own + line).hex();
    row.kernel = std::string(blob.name) + "\t" + line;
    row.symbol = symbols.empty() ? "" : symbols[0];
    row.recipe = symbols.empty() ? columns.host_recipe : columns.device_recipe;
    return row;
}

ManifestView ManifestView::parts(std::uint32_t index, const Strings& lines) const {
    Strings all = {LAZYCK_IMAGE_SYMBOL};
    std::string whole = "*\t\t\t";
    for (const std::string& line : lines) {
        if (line[0] == '*')
            whole = line;
        else
            all.push_back(symbol_in(line));
    }
    std::vector<PartRow> rows = {part(index, "host", own_blob(index).name, {}), part(index, "device", whole, all)};
    for (const std::string& line : lines) {
        const std::string symbol = symbol_in(line);
        if (line[0] != '*') rows.push_back(part(index, kernel_name(symbol), line, {symbol}));
    }
    return with_parts(index, std::move(rows));
}

ManifestView ManifestView::kernel(std::uint32_t index, const std::string& line) const {
    const std::string symbol = symbol_in(line);
    return with_parts(index, {part(index, kernel_name(symbol), line, {symbol})});
}

ManifestView ManifestView::unknown_kernel(std::uint32_t index, const std::string& name) const {
    PartRow row = part(index, "", "", {name});
    row.name = name;
    return with_parts(index, {row});
}

ManifestView ManifestView::with_parts(std::uint32_t index, std::vector<PartRow> rows) const {
    ManifestView view = *this;
    view.m_whole = index;
    view.m_parts = std::make_shared<const std::vector<PartRow>>(std::move(rows));
    return view;
}

Strings ManifestView::symbols_of(const BlobRow& blob) const {
    Strings names;
    if (m_parts) {
        for (const PartRow& part : *m_parts) {
            if (part.name == blob.name && !part.symbol.empty()) return {part.symbol};
        }
    }
    for (std::uint32_t i = 0; i < blob.symbol_count; ++i) names.push_back(elf_name(symbol_name(blob.first_symbol + i)));
    return names;
}

const char* ManifestView::shelf() const { return file_name()[0] != '\0' ? library() : LAZYCK_PROGRAMS; }

Strings ManifestView::private_names() const {
    Strings names = list(m_header.private_names);
    for (std::uint32_t i = 0; i < m_header.symbols; ++i) {
        const std::string_view symbol = symbol_name(i);
        if (is_private(symbol)) names.push_back(elf_name(symbol));
    }
    return names;
}

std::string private_name(std::string_view symbol, std::string_view tag) {
    const std::string text = std::string(symbol).append(tag);
    return LAZYCK_PRIVATE_LEAD + sha256_hex(text.data(), text.size()).substr(0, LAZYCK_PRIVATE_DIGITS);
}

std::string ManifestView::elf_name(std::string_view symbol) const {
    if (!is_private(symbol)) return std::string(symbol);
    return private_name(symbol.substr(0, symbol.size() - (sizeof LAZYCK_PRIVATE_MARK - 1)), private_tag());
}

ManifestView::SymbolColumns ManifestView::symbol_at(std::uint32_t index) const {
    return row<SymbolColumns>(m_header.symbols_at, m_header.symbols, index, "no such symbol");
}

const char* ManifestView::symbol_name(std::uint32_t index) const { return string(symbol_at(index).name); }

std::uint32_t ManifestView::symbol_blob(std::uint32_t index) const { return symbol_at(index).blob; }

ManifestView::RecipeColumns ManifestView::recipe_at(std::uint32_t index) const {
    return row<RecipeColumns>(m_header.recipes_at, m_header.recipes, index, "no such recipe");
}

const char* ManifestView::recipe_toolchain(std::uint32_t index) const { return string(recipe_at(index).toolchain); }

const char* ManifestView::recipe_toolchain_id(std::uint32_t index) const {
    return string(recipe_at(index).toolchain_id);
}

bool ManifestView::has_arch_flags(std::uint32_t index) const { return !list(recipe_at(index).arch_flags).empty(); }

Strings ManifestView::recipe_archs(std::uint32_t index) const { return list(recipe_at(index).archs); }

RecipeRow ManifestView::recipe(std::uint32_t index) const {
    const RecipeColumns row = recipe_at(recipe_here(index));
    return RecipeRow{string(row.toolchain), string(row.toolchain_id), string(row.home), list(row.home_env),
                     list(row.compile),     list(row.link),           list(row.env),    list(row.arch_flags),
                     list(row.programs),    string(row.headers)};
}

std::uint32_t ManifestView::recipe_here(std::uint32_t index) const {
    while (!cpu_has(string(recipe_at(index).cpu))) ++index;
    return index;
}

std::string kernel_of(const BlobRow& blob) {
    const char* const tab = std::strchr(blob.kernel, '\t');
    return tab == nullptr ? "" : tab + 1;
}

std::string host_unit_of(const BlobRow& blob) {
    const char* const tab = std::strchr(blob.kernel, '\t');
    return tab == nullptr ? "" : std::string(blob.kernel, tab);
}

bool is_device_code(const BlobRow& blob) {
    const std::string kernel = kernel_of(blob);
    return !kernel.empty() && kernel != host_unit_of(blob);
}

std::vector<Strings> archs_of_entries(const BlobRow& blob, const Strings& archs) {
    if (archs.size() < 2 || !is_device_code(blob)) return {archs};
    std::vector<Strings> each;
    for (const std::string& arch : archs) each.push_back({arch});
    return each;
}

Subject subject_of(const ManifestView& manifest, const BlobRow& blob, const std::string& arch_label) {
    const std::string kernel = kernel_of(blob);
    const bool is_kernel = is_device_code(blob) && kernel[0] != '*';
    return {visible(blob.name) + " for " + arch_label, manifest.library(), blob.name,
            is_kernel ? kernel.substr(0, kernel.find('\t')) : "", arch_label};
}

}  // namespace lazyck::rt
