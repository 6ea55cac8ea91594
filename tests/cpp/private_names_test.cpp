#include "store/private_names.h"

#include <elf.h>

#include <algorithm>

#include "platform/elf_view.h"
#include "unit_support.h"

namespace lazyck::rt {

using unit::made_file;
using unit::Scratch;

namespace {

// Renames symbols in a copy of an object, and returns the names of its symbol table afterwards.
Strings names_after(const std::string& object, const Strings& private_ones, std::string& problem) {
    const Scratch scratch;
    unit::write_file(scratch / "object.o", object);
    const UniqueFd fd = open_file(scratch / "object.o", O_RDWR);
    problem = give_private_names(fd.get(), private_ones);
    const std::string text = unit::read_file_of(scratch / "object.o");
    const SymbolNames symbols(reinterpret_cast<const unsigned char*>(text.data()), text.size());
    // The other tables of a good object stay readable.
    const ElfView view(reinterpret_cast<const unsigned char*>(text.data()), text.size());
    const ElfView before(reinterpret_cast<const unsigned char*>(object.data()), object.size());
    if (object == made_file("object.o")) CHECK(view.section(".text") == before.section(".text"));
    Strings names;
    for (const Elf64_Sym& row : symbols.rows) names.emplace_back(symbols.name(row));
    return names;
}

bool has_name(const Strings& names, const char* name) {
    return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

TEST_CASE("a private name is a plain name, a mark and a tag") {
    const Strings known = {"add.lazyck.1", "plain", "a.lazyck.b.lazyck.2"};
    const Names names = private_names(known);
    CHECK(names.size() == 2);
    CHECK(names.at("add") == "add.lazyck.1");
    CHECK(names.at("a.lazyck.b") == "a.lazyck.b.lazyck.2");
}

TEST_CASE("symbols are renamed where they are defined and where they are used") {
    std::string problem;
    const Strings names =
        names_after(made_file("object.o"), {"mine.lazyck.1", "other.lazyck.1", "absent.lazyck.1"}, problem);
    CHECK(problem == "");
    CHECK(has_name(names, "mine.lazyck.1"));
    CHECK(has_name(names, "other.lazyck.1"));
    CHECK(has_name(names, "keep"));
    CHECK(!has_name(names, "mine"));
    CHECK(!has_name(names, "other"));
    CHECK(!has_name(names, "absent.lazyck.1"));
}

TEST_CASE("symbols of the object alone keep their names") {
    std::string problem;
    const Strings names = names_after(made_file("object.o"), {"_ZL5localv.lazyck.1"}, problem);
    CHECK(problem == "");
    CHECK(has_name(names, "_ZL5localv"));
}

TEST_CASE("without private names nothing is read") {
    std::string problem;
    names_after("no object", {"plain"}, problem);
    CHECK(problem == "");
}

TEST_CASE("what is no object is refused, and no number in one leads outside") {
    std::string problem;
    names_after("no object", {"mine.lazyck.1"}, problem);
    CHECK(problem == "it is no ELF object whose symbols could be renamed");
    const std::string whole = made_file("object.o");
    for (std::size_t size = 0; size < whole.size(); size += 16)
        names_after(whole.substr(0, size), {"mine.lazyck.1"}, problem);
    // The header of the file, and the headers of its sections, are at its ends.
    for (std::size_t at = 0; at + 8 <= whole.size(); at += at == 64 ? (whole.size() - 64) / 8 * 8 - 64 * 24 : 8) {
        std::string changed = whole;
        for (std::size_t i = 0; i < 8; ++i) changed[at + i] = static_cast<char>(0xff);
        names_after(changed, {"mine.lazyck.1"}, problem);
    }
}

}  // namespace lazyck::rt
