// Splits a source: makes the object of its host code, and the device code of one kernel or of all.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "steps.h"

namespace lazyck::units {

// A kernel as the host code of its source registers it: the fields of a line, separated by tabs.
// The symbol `*` stands for all kernels of the source.
struct Kernel {
    std::string symbol, parameters, spelling, type;
    std::vector<std::string> state;  // variables of the source that are not constants

    std::vector<std::string> words() const;
};

// Parses a line. Throws std::runtime_error if it describes no kernel.
Kernel kernel_of(const std::string& line);

struct Unit {
    Words command;          // nvcc's or clang's, from one source to one object
    std::string source;     // as the command names it
    std::string directory;  // for what the steps write
    std::string output;
    int asker = -1;  // a socket to ask whether the result exists (see Material); -1 if there is none
};

// Where a host unit has its table: in its section .lazyck.kernels, which the linker leaves out, or
// in its data, behind its name.
enum class TableIn { section, data };

// Makes the object of the host code, with the name `id` in place of device code, and with the table
// of what it registers. If the table is in its data, also writes the file `<output>.cost` with a
// line "host <CPU seconds> <of these, to read the device text> <to read all of that text>
// <kernels>". Throws Refused.
void make_host_unit(const Unit& unit, const std::string& id, TableIn where);

// Makes a library with the device code of `kernel`, or one that says why that cannot be compiled by
// itself. Also writes the file `<output>.cost`, with one of these lines:
//     kernel <CPU seconds>
//     alone <CPU seconds> <of these, to read the device text>, where all of the text was read
//     refused <CPU seconds>
//     whole <CPU seconds>, for the device code of all kernels
// Throws Refused.
void make_kernel_unit(const Unit& unit, const Kernel& kernel);

// These make such units of HIP sources that clang compiles.
void make_hip_host_unit(const Unit& unit, const std::string& id, TableIn where);
void make_hip_kernel_unit(const Unit& unit, const Kernel& kernel);
// Makes the object that the command makes, with equal contents. Host code and device code are
// compiled at the same time, and the device code is put into the host's object afterwards.
void make_hip_object(const Unit& unit);
// Asks whether that object exists already (see Material), and makes nothing.
void ask_for_hip_object(const Unit& unit);

// Is thrown if the result exists already, so that there is nothing more to do.
struct Answered {};

// Asks whether a unit that is about to be made exists already. The process that started this
// program looks that up by everything that decides the result: the text that the compiler proper
// would get, and the commands. This depends on less than the contents of the source's headers. It
// often stays equal when a header changes, for example in a comment or in a declaration that no
// kernel leads to. It is collected in words that mean the same in every directory. The digest of
// this program's sources is a part of it.
class Material {
 public:
    explicit Material(const Unit& unit);

    // Whether questions are answered. If not, no material is collected.
    bool is_asked_for() const { return m_unit.asker >= 0; }
    // Adds a command that will be run, or a part of one.
    void add(const Words& words);
    void add(const std::string& word) { add(Words{word}); }
    // Adds the command of a compiler that gets preprocessed text or IR. Leaves out words that only
    // concern the reading of headers, or that only name a file or a line.
    void add_after_reading(const Words& words);
    // Adds the output of a preprocessor. File names and line numbers count only if something looks
    // at them: the options of `compile`, which reads the text, or the text itself.
    void add_source(std::string_view text, const Step& compile);
    void add_ir(std::string_view text);

    // Writes the material to the file `<output>.text`, asks, and throws Answered if the result
    // exists.
    void ask() const;

 private:
    // Removes the source's directory wherever it is named.
    void drop_directory(std::string& text) const;

    const Unit& m_unit;
    std::string m_text;
};

// Returns `text` as a string literal of assembler text or of C++.
std::string quoted(std::string_view text);

// Writes the file `<output>.cost` of a unit, with `what` as its line.
void write_cost(const Unit& unit, const std::string& what);

// How libraries with images are made: the compiler, the section, and the alignment of the image, as
// a power of two.
struct LibraryFormat {
    std::string compiler, section;
    int alignment;
};

// Makes the shared library `unit.output`, in which each of the names `symbols` stands for the
// contents of the file `image`. Throws Refused.
void make_library(const LibraryFormat& library, const Unit& unit, const std::set<std::string>& symbols,
                  const std::string& image);

// Makes a library that says why `kernel` cannot be compiled by itself, and writes the cost.
void make_refusal(const LibraryFormat& library, const Unit& unit, const Kernel& kernel, const std::string& reason);

}  // namespace lazyck::units
