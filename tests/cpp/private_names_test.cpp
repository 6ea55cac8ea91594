#include "store/private_names.h"

#include <elf.h>

#include <algorithm>
#include <cstring>

#include "bundle/manifest_view.h"
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
    problem = give_private_names(fd.get(), private_ones, "tag", {});
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

std::string of(const char* symbol) { return private_name(symbol, "tag"); }

bool has_name(const Strings& names, const char* name) {
    return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

TEST_CASE("a private name is a lead and digits of the symbol and the tag, as Python makes it") {
    CHECK(private_name("_Z3addii", "tag") == "lazyck.08654c8dbec4");
    CHECK(private_name("_Z3addii", "other") != private_name("_Z3addii", "tag"));
}

TEST_CASE("symbols are renamed where they are defined and where they are used") {
    std::string problem;
    const Strings names = names_after(made_file("object.o"), {of("mine"), of("other"), of("absent")}, problem);
    CHECK(problem == "");
    CHECK(has_name(names, of("mine").c_str()));
    CHECK(has_name(names, of("other").c_str()));
    CHECK(has_name(names, "keep"));
    CHECK(!has_name(names, "mine"));
    CHECK(!has_name(names, "other"));
    CHECK(!has_name(names, of("absent").c_str()));
}

TEST_CASE("symbols of the object alone keep their names") {
    std::string problem;
    const Strings names = names_after(made_file("object.o"), {of("_ZL5localv")}, problem);
    CHECK(problem == "");
    CHECK(has_name(names, "_ZL5localv"));
}

TEST_CASE("without private names nothing is read") {
    std::string problem;
    names_after("no object", {}, problem);
    CHECK(problem == "");
}

TEST_CASE("an object whose header does not count its sections is read, and one that contradicts itself is refused") {
    const std::string whole = made_file("object.o");
    const Strings wanted = {of("mine")};
    std::string problem;
    const Strings names = names_after(whole, wanted, problem);
    Elf64_Ehdr header;
    std::memcpy(&header, whole.data(), sizeof header);
    // With very many sections, the first one has the number.
    const auto changed_by = [&](const auto& change, bool is_uncounted = false) {
        std::string object = whole;
        const auto sections = reinterpret_cast<Elf64_Shdr*>(&object[header.e_shoff]);
        if (is_uncounted) {
            reinterpret_cast<Elf64_Ehdr*>(object.data())->e_shnum = 0;
            sections[0].sh_size = header.e_shnum;
        }
        for (int i = 0; i < header.e_shnum; ++i) {
            if (sections[i].sh_type == SHT_SYMTAB) change(sections[i], sections[sections[i].sh_link]);
        }
        return names_after(object, wanted, problem);
    };
    using Row = Elf64_Shdr&;
    CHECK(changed_by([](Row, Row) {}, true) == names);
    CHECK(problem == "");
    const auto is_refused = [&](const auto& change) {
        changed_by(change);
        return problem == "it is no ELF object whose symbols could be renamed";
    };
    CHECK(is_refused([&](Row symbols, Row) { symbols.sh_link = header.e_shnum; }));
    CHECK(is_refused([&](Row, Row strings) { strings.sh_offset = whole.size() + 1; }));
    CHECK(is_refused([&](Row, Row strings) { strings.sh_size = whole.size() - strings.sh_offset + 1; }));
    CHECK(is_refused([&](Row symbols, Row) { symbols.sh_size = whole.size() * 2; }));
    CHECK(is_refused([&](Row symbols, Row) { symbols.sh_offset = whole.size() - symbols.sh_size + 8; }));
    CHECK(is_refused([&](Row symbols, Row) { symbols.sh_size = 0; }));
    CHECK(is_refused([&](Row symbols, Row) { symbols.sh_type = SHT_PROGBITS; }));
}

TEST_CASE("what is no object is refused, and no number in one leads outside") {
    std::string problem;
    names_after("no object", {of("mine")}, problem);
    CHECK(problem == "it is no ELF object whose symbols could be renamed");
    const std::string whole = made_file("object.o");
    for (std::size_t size = 0; size < whole.size(); size += 16)
        names_after(whole.substr(0, size), {of("mine")}, problem);
    // The header of the file, and the headers of its sections, are at its ends.
    for (std::size_t at = 0; at + 8 <= whole.size(); at += at == 64 ? (whole.size() - 64) / 8 * 8 - 64 * 24 : 8) {
        std::string changed = whole;
        for (std::size_t i = 0; i < 8; ++i) changed[at + i] = static_cast<char>(0xff);
        names_after(changed, {of("mine")}, problem);
    }
}

}  // namespace lazyck::rt
