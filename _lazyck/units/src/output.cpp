#include "output.h"

#include "lazyck_abi.h"
#include "process.h"

namespace lazyck::units {

std::string quoted(std::string_view text) {
    std::string out = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') out += '\\';
        out += c;
    }
    return out + "\"";
}

void write_cost(const Job& job, const std::string& what) { write_file(job.output + ".cost", what + "\n"); }

namespace {

void make_library_of(const std::string& content, const Library& library, const Job& job,
                     const std::set<std::string>& symbols) {
    std::string text = " .section " + library.section + ",\"a\"\n .p2align " + std::to_string(library.alignment) + "\n";
    for (const std::string& symbol : symbols) {
        const std::string name = quoted(symbol);
        text += " .globl " + name + "\n .type " + name + ",%function\n" + name + ":\n";
    }
    text += content + " .section .note.GNU-stack,\"\",%progbits\n";
    const std::string assembler = job.directory + "/unit.s";
    write_file(assembler, text);
    run({{library.compiler, "-shared", "-nostdlib", "-Wl,--build-id=none", "-x", "assembler", assembler, "-o",
          job.output}});
}

}  // namespace

void make_library(const Library& library, const Job& job, const std::set<std::string>& symbols,
                  const std::string& image) {
    make_library_of(" .incbin " + quoted(image) + "\n", library, job, symbols);
}

void make_refusal(const Library& library, const Job& job, const Kernel& kernel, const std::string& reason) {
    make_library_of(" .asciz " + quoted(LAZYCK_WHOLE_SOURCE_MARK + reason) + "\n", library, job, {kernel.symbol});
    write_cost(job, "refused " + std::to_string(cpu_seconds()));
}

}  // namespace lazyck::units
