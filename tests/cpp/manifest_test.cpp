#include <elf.h>

#include <cstring>

#include "bundle/manifest_view.h"
#include "platform/elf_view.h"
#include "unit_support.h"

namespace lazyck::rt {

using unit::has;
using unit::made_file;
using unit::message_of;

namespace {

// A copy whose end is that of an allocation, so that the address sanitizer notices what reads
// beyond it.
class TightCopy {
 public:
    explicit TightCopy(const std::string& text) : m_size(text.size()), m_data(new unsigned char[text.size()]) {
        std::memcpy(m_data.get(), text.data(), m_size);
    }
    ManifestView view() const { return {m_data.get(), m_size, "here"}; }

 private:
    std::size_t m_size;
    std::unique_ptr<unsigned char[]> m_data;
};

std::string with_number(std::string text, std::size_t at, std::uint32_t value) {
    std::memcpy(text.data() + at, &value, sizeof value);
    return text;
}

std::uint32_t number_in_file(const std::string& text, std::size_t at) {
    std::uint32_t value;
    std::memcpy(&value, text.data() + at, sizeof value);
    return value;
}

// Reads everything that a manifest tells.
void read_all(const ManifestView& view) {
    for (const char* text : {view.library(), view.file_name(), view.cache_name(), view.shelf(), view.root(),
                             view.contents(), view.digest()})
        static_cast<void>(std::strlen(text));
    view.archs();
    view.private_names();
    for (std::uint32_t i = 0; i < view.blob_count(); ++i) {
        const BlobRow blob = view.blob(i);
        view.symbols_of(blob);
        view.recipe(blob.recipe);
        view.recipe_toolchain(blob.recipe);
        view.recipe_toolchain_id(blob.recipe);
        view.has_arch_flags(blob.recipe);
        if (view.has_parts(i)) view.parts(i, {"symbol\trest"}).blob(2);
    }
    for (std::uint32_t i = 0; i < view.symbol_count(); ++i) {
        static_cast<void>(std::strlen(view.symbol_name(i)));
        view.symbol_blob(i);
    }
}

// Offsets of fields in the header.
constexpr std::size_t k_version_field = 8, k_size_field = 12, k_blobs_field = 16, k_symbols_field = 20,
                      k_words_field = 28, k_blobs_at_field = 32, k_symbols_at_field = 36, k_recipes_at_field = 40,
                      k_lists_at_field = 44, k_strings_at_field = 48, k_strings_size_field = 52, k_library_field = 56,
                      k_archs_field = 72, k_machine_field = 88, k_header_end = 104;

}  // namespace

TEST_CASE("a manifest is read as Python wrote it") {
    const TightCopy copy(made_file("manifest"));
    const ManifestView view = copy.view();
    CHECK(view.blob_count() == 3);
    CHECK(view.symbol_count() == 4);
    CHECK(std::string(view.library()) == "demo");
    CHECK(std::string(view.file_name()) == "libdemo.so");
    CHECK(std::string(view.cache_name()) == "shelf");
    CHECK(std::string(view.shelf()) == "demo");
    CHECK(std::string(view.root()) == "/baked");
    CHECK(view.archs() == Strings{"80", "90"});
    CHECK(view.private_names() == Strings{"lazyck.1a2b3c4d", private_name("third", "tag")});
    CHECK(std::string(view.contents()) == std::string(64, 'e'));
    CHECK(std::string(view.digest()) == std::string(64, 'd'));
    CHECK(view.machine() == EM_X86_64);
    const BlobRow plain = view.blob(0), parted = view.blob(1), kernel = view.blob(2);
    CHECK(std::string(plain.name) == "plain");
    CHECK(std::string(plain.source) == "src/plain.cpp");
    CHECK(std::string(plain.digest) == std::string(64, 'a'));
    CHECK(plain.recipe == 0);
    CHECK(plain.first_symbol == 0);
    CHECK(plain.symbol_count == 2);
    CHECK(std::string(plain.kernel) == "");
    CHECK(!plain.has_parts);
    CHECK(!view.has_parts(0));
    CHECK(parted.recipe == 1);
    CHECK(parted.first_symbol == 2);
    CHECK(parted.symbol_count == 1);
    CHECK(parted.has_parts);
    CHECK(view.has_parts(1));
    CHECK(std::string(kernel.kernel) == "parted\tfourth\tx");
    CHECK(view.symbols_of(plain) == Strings{"first", "second"});
    CHECK(std::string(view.symbol_name(3)) == "fourth");
    CHECK(view.symbol_blob(0) == 0);
    CHECK(view.symbol_blob(1) == 0);
    CHECK(view.symbol_blob(3) == 2);
    CHECK(view.has_slots());
    const RecipeRow host = view.recipe(0);
    CHECK(host.toolchain == "host");
    CHECK(host.toolchain_id == "g++-12");
    CHECK(host.home == "/home/of");
    CHECK(host.home_env == Strings{"HOME_OF"});
    CHECK(host.compile == Strings{"c++", "-c"});
    CHECK(host.link == Strings{"c++", "-shared"});
    CHECK(host.env == Strings{"CPATH", "/x"});
    CHECK(host.arch_flags == Strings{});
    CHECK(!view.has_arch_flags(0));
    CHECK(view.has_arch_flags(1));
    CHECK(std::string(view.recipe_toolchain(1)) == "cuda");
    CHECK(std::string(view.recipe_toolchain_id(1)) == "nvcc-12");
    CHECK(view.recipe(1).arch_flags == Strings{"-arch=sm_90"});
    CHECK(view.recipe(1).programs == Strings{"nvcc", "as"});
    CHECK(view.recipe(1).headers == std::string(64, 'f'));
}

TEST_CASE("a view of no manifest has no blobs") {
    const ManifestView view;
    CHECK(view.blob_count() == 0);
    CHECK(view.symbol_count() == 0);
    CHECK(std::string(view.library()) == "");
    CHECK(view.archs().empty());
    CHECK(view.private_names().empty());
}

TEST_CASE("the manifest of a program has no file name, and programs share a shelf") {
    const TightCopy copy(made_file("empty-manifest"));
    CHECK(std::string(copy.view().shelf()) == LAZYCK_PROGRAMS);
    CHECK(copy.view().machine() == own_machine());
}

TEST_CASE("rows that do not exist are refused") {
    const TightCopy copy(made_file("manifest"));
    const ManifestView view = copy.view();
    CHECK(has(message_of([&] { view.blob(3); }), "no such blob"));
    CHECK(has(message_of([&] { view.symbol_name(4); }), "no such symbol"));
    CHECK(has(message_of([&] { view.symbol_blob(4); }), "no such symbol"));
    CHECK(has(message_of([&] { view.recipe(5); }), "no such recipe"));
    CHECK(has(message_of([&] { view.recipe_toolchain(5); }), "no such recipe"));
    CHECK(has(message_of([&] { view.parts(1, {}).blob(2); }), "no such part"));
}

TEST_CASE("a manifest that is cut short anywhere is refused") {
    const std::string whole = made_file("manifest");
    for (std::size_t size = 0; size < whole.size(); ++size) {
        CAPTURE(size);
        const TightCopy copy(whole.substr(0, size));
        CHECK(has(message_of([&] { copy.view(); }), size < k_header_end ? "not a lazyck manifest" : "cut short"));
    }
    const TightCopy longer(whole + "x");
    CHECK(longer.view().blob_count() == 3);
}

TEST_CASE("a manifest of another kind or version is refused") {
    const std::string whole = made_file("manifest");
    for (std::size_t at = 0; at < 8; ++at) {
        std::string changed = whole;
        changed[at] = static_cast<char>(changed[at] ^ 1);
        CHECK(has(message_of([&] { TightCopy(changed).view(); }), "not a lazyck manifest"));
    }
    const TightCopy newer(with_number(whole, k_version_field, LAZYCK_MANIFEST_VERSION + 1));
    CHECK(has(message_of([&] { newer.view(); }),
              "here: manifest version " + std::to_string(LAZYCK_MANIFEST_VERSION + 1)));
}

TEST_CASE("no number in a manifest leads a reader outside") {
    const std::string whole = made_file("manifest");
    for (std::size_t at = 8; at + 4 <= whole.size(); at += 4) {
        for (const std::uint32_t value :
             {0xffffffffU, 0x80000000U, 0x7fffffffU, 0x10000U, number_in_file(whole, at) + 1,
              number_in_file(whole, at) - 1, static_cast<std::uint32_t>(whole.size())}) {
            const TightCopy copy(with_number(whole, at, value));
            try {
                read_all(copy.view());
            } catch (const CompileError& e) {
                CHECK(has(e.what(), "here: "));
            }
        }
    }
}

TEST_CASE("a table must lie inside the manifest, to its last row") {
    const std::string whole = made_file("manifest");
    const std::size_t size = number_in_file(whole, k_size_field);
    const struct {
        std::size_t at, count;
        std::size_t row;
    } tables[] = {{k_blobs_at_field, k_blobs_field, 40},
                  {k_symbols_at_field, k_symbols_field, 8},
                  {k_recipes_at_field, 24, 48},
                  {k_lists_at_field, k_words_field, 4}};
    for (const auto& table : tables) {
        CAPTURE(table.at);
        const auto most = static_cast<std::uint32_t>((size - number_in_file(whole, table.at)) / table.row);
        TightCopy(with_number(whole, table.count, most)).view();
        const TightCopy more(with_number(whole, table.count, most + 1));
        CHECK(has(message_of([&] { more.view(); }), "a table lies outside"));
        const TightCopy beyond(
            with_number(with_number(whole, table.count, 0), table.at, static_cast<std::uint32_t>(size + 1)));
        CHECK(has(message_of([&] { beyond.view(); }), "a table lies outside"));
        TightCopy(with_number(with_number(whole, table.count, 0), table.at, static_cast<std::uint32_t>(size))).view();
    }
}

TEST_CASE("strings and lists must lie inside their pools") {
    const std::string whole = made_file("manifest");
    const std::uint32_t strings = number_in_file(whole, k_strings_size_field),
                        words = number_in_file(whole, k_words_field);
    const TightCopy unended(with_number(whole, k_strings_size_field, strings - 1));
    CHECK(has(message_of([&] { unended.view(); }), "its strings have no end"));
    const TightCopy none(with_number(whole, k_strings_size_field, 0));
    CHECK(has(message_of([&] { none.view(); }), "its strings have no end"));
    const TightCopy outside(with_number(whole, k_library_field, strings));
    CHECK(has(message_of([&] { outside.view().library(); }), "a string lies outside"));
    CHECK(std::string(TightCopy(with_number(whole, k_library_field, strings - 1)).view().library()) == "");
    const TightCopy no_list(with_number(whole, k_archs_field, words));
    CHECK(has(message_of([&] { no_list.view().archs(); }), "a list lies outside"));
    // The last word of the pool is the count of a list without words.
    const std::uint32_t lists = number_in_file(whole, k_lists_at_field);
    const std::string last = with_number(with_number(whole, k_archs_field, words - 1), lists + 4 * (words - 1), 0);
    CHECK(TightCopy(last).view().archs().empty());
    const TightCopy endless(with_number(last, lists + 4 * (words - 1), 1));
    CHECK(has(message_of([&] { endless.view().archs(); }), "a list has no end"));
    const std::string two =
        with_number(with_number(with_number(whole, k_archs_field, words - 2), lists + 4 * (words - 2), 1),
                    lists + 4 * (words - 1), 0);
    CHECK(TightCopy(two).view().archs().size() == 1);
}

TEST_CASE("a list whose words share a string cannot fill the memory") {
    const std::string whole = made_file("manifest");
    // A string of a megabyte that a list names twenty times is longer than any command.
    std::string grown = whole.substr(0, number_in_file(whole, k_size_field));
    const std::uint32_t strings = number_in_file(whole, k_strings_at_field);
    const auto lists_at = static_cast<std::uint32_t>(grown.size());
    const std::uint32_t old_size = number_in_file(whole, k_strings_size_field);
    const auto with_list = [&](std::uint32_t count) {
        std::string text = grown;
        text.append(4 * (count + 1), '\0');
        text = with_number(text, lists_at, count);
        const auto pool = static_cast<std::uint32_t>(text.size());
        text += grown.substr(strings, old_size) + std::string((1 << 20) - 1, 'w') + '\0';
        for (std::uint32_t i = 0; i < count; ++i) text = with_number(text, lists_at + 4 + 4 * i, old_size);
        text = with_number(text, k_size_field, static_cast<std::uint32_t>(text.size()));
        text = with_number(text, k_lists_at_field, lists_at);
        text = with_number(text, k_words_field, count + 1);
        text = with_number(text, k_strings_at_field, pool);
        text = with_number(text, k_strings_size_field, old_size + (1 << 20));
        return with_number(text, k_archs_field, 0);
    };
    CHECK(TightCopy(with_list(16)).view().archs().size() == 16);
    const TightCopy longer(with_list(17));
    CHECK(has(message_of([&] { longer.view().archs(); }), "longer than any command"));
}

TEST_CASE("a blob's symbols must be rows of the table") {
    const std::string whole = made_file("manifest");
    const std::uint32_t blobs = number_in_file(whole, k_blobs_at_field);
    CHECK(TightCopy(with_number(with_number(whole, blobs + 16, 4), blobs + 20, 0)).view().blob(0).symbol_count == 0);
    for (const auto& [first, count] :
         {std::pair{5U, 0U}, std::pair{0U, 5U}, std::pair{3U, 2U}, std::pair{1U, 0xffffffffU}}) {
        const TightCopy copy(with_number(with_number(whole, blobs + 16, first), blobs + 20, count));
        CHECK(has(message_of([&] { copy.view().blob(0); }), "a blob's symbols lie outside"));
    }
}

TEST_CASE("a machine that is unknown here is refused") {
    const std::string whole = made_file("manifest");
    const TightCopy copy(with_number(whole, k_machine_field, number_in_file(whole, k_library_field)));
    CHECK(has(message_of([&] { copy.view(); }), "for machine 'demo'"));
}

TEST_CASE("the parts of a blob are its host unit, its whole device code and its kernels") {
    const TightCopy copy(made_file("manifest"));
    const ManifestView view = copy.view();
    const ManifestView parts = view.parts(1, {"_Z3addii\tx\ty", "*\tall", "_Z3subii\tz"});
    CHECK(parts.blob_count() == 4);
    CHECK(!parts.has_slots());
    CHECK(!parts.has_parts(0));
    const BlobRow host = parts.blob(ManifestView::k_host_unit), whole = parts.blob(ManifestView::k_whole_device);
    CHECK(std::string(host.name) == "parted.host");
    CHECK(std::string(host.kernel) == "parted\tparted");
    CHECK(host.recipe == 0);
    CHECK(parts.symbols_of(host) == Strings{private_name("third", "tag")});
    CHECK(std::string(whole.name) == "parted.device");
    CHECK(std::string(whole.kernel) == "parted\t*\tall");
    CHECK(whole.recipe == 1);
    CHECK(parts.symbols_of(whole) == Strings{LAZYCK_IMAGE_SYMBOL});
    const BlobRow add = parts.blob(2), sub = parts.blob(3);
    CHECK(std::string(add.name) == "parted.add-" + hash("_Z3addii").hex().substr(0, 8));
    CHECK(std::string(add.kernel) == "parted\t_Z3addii\tx\ty");
    CHECK(parts.symbols_of(add) == Strings{"_Z3addii"});
    CHECK(parts.symbols_of(sub) == Strings{"_Z3subii"});
    CHECK(!add.has_parts);
    CHECK(std::string(add.source) == "src/parted.cu");
    const std::string digest = std::string(64, 'b') + " units ";
    CHECK(std::string(add.digest) == hash(digest + "_Z3addii\tx\ty").hex());
    CHECK(std::string(host.digest) == hash(digest + "parted").hex());
    CHECK(std::string(view.parts(1, {}).blob(1).kernel) == "parted\t*\t\t\t");
    const ManifestView one = view.kernel(1, "_Z3addii\tx\ty");
    CHECK(one.blob_count() == 1);
    CHECK(std::string(one.blob(0).digest) == add.digest);
    CHECK(std::string(one.blob(0).name) == add.name);
    const ManifestView unknown = view.unknown_kernel(1, "name");
    CHECK(std::string(unknown.blob(0).name) == "name");
    CHECK(unknown.symbols_of(unknown.blob(0)) == Strings{"name"});
}

TEST_CASE("a recipe that needs what this CPU lacks stands for the next one that does not") {
    const std::string text = made_file("manifest");
    const ManifestView view(text.data(), text.size(), "here");
    CHECK(view.recipe_here(0) == 0);
    CHECK(view.recipe_here(2) == 4);
    CHECK(view.recipe(2).compile == Strings{"c++", "-march=x86-64"});
}

TEST_CASE("a kernel's short name is that of its function") {
    const auto name_of = [](const char* symbol) {
        const std::string name = kernel_name(symbol);
        CHECK(name.substr(name.size() - 9) == "-" + hash(symbol).hex().substr(0, 8));
        return name.substr(0, name.size() - 9);
    };
    CHECK(name_of("_Z3addii") == "add");
    CHECK(name_of("_ZN2ns3addEii") == "add");
    CHECK(name_of("_ZN12_GLOBAL__N_13addEii") == "add");
    CHECK(name_of("_Z3addIiEvT_") == "add");
    CHECK(name_of("plain") == "plain");
    const std::string longest(60, 'a'), longer(61, 'a');
    CHECK(name_of(longest.c_str()) == longest);
    CHECK(name_of(longer.c_str()) == longest);
}

TEST_CASE("device code spells names without the digits of a host unit") {
    const std::string mark = LAZYCK_MODULE_ID;
    CHECK(device_name("plain") == "plain");
    CHECK(device_name("a" + mark + "0123456789abcdef") == "a" + mark + std::string(16, '0'));
    CHECK(device_name("a" + mark + "0123456789abcdef1 b" + mark + "fedcba9876543210 c") ==
          "a" + mark + std::string(16, '0') + "1 b" + mark + std::string(16, '0') + " c");
    CHECK(device_name("a" + mark + "0123456789abcde") == "a" + mark + "0123456789abcde");
    CHECK(device_name("a" + mark + "0123456789abcdeg") == "a" + mark + "0123456789abcdeg");
}

TEST_CASE("the lines of device code name the variables of the source, too") {
    const std::string mark = LAZYCK_MODULE_ID "0123456789abcdef", zeros = LAZYCK_MODULE_ID "0000000000000000";
    const std::string table = "kernel\tk" + mark + "\t1\nvariable\tv" + mark + "\nwhole\t*\t2\nreads\tx\nno tab\n";
    CHECK(lines_of_table(table) == Strings{"k" + zeros + "\t1\tv" + zeros, "*\t2"});
    CHECK(lines_of_table("").empty());
}

}  // namespace lazyck::rt
