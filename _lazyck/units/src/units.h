// Splits a source: makes the object of its host code, and the device code of one kernel or of all.
#pragma once

#include <string>

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

struct Job {
    Words command;          // nvcc's or clang's, from one source to one object
    std::string source;     // as the command names it
    std::string directory;  // for what the steps write
    std::string output;
    int asker = -1;  // a socket to ask whether the result exists (see asking.h); -1 if there is none
};

// These return the text that makes the source's internal names unique: in the host unit `id` of a
// job, and in all device code.
std::string module_id_of(const Job& job, const std::string& id);
std::string device_module_id();

// Where a host unit has its table: in its section .lazyck.kernels, which the linker leaves out, or
// in its data, behind its name.
enum class TableIn { section, data };

// Makes the object of the host code, with the name `id` in place of device code, and with the table
// of what it registers. If the table is in its data, also writes the file `<output>.cost` with a
// line "host <CPU seconds> <of these, to read the device text> <to read all of that text>
// <kernels>". Throws Refused.
void make_host_unit(const Job& job, const std::string& id, TableIn place);

// Makes a library with the device code of `kernel`, or one that says why that cannot be compiled by
// itself. Also writes the file `<output>.cost`, with one of these lines:
//     kernel <CPU seconds>
//     alone <CPU seconds> <of these, to read the device text>, where all of the text was read
//     refused <CPU seconds>
//     whole <CPU seconds>, for the device code of all kernels
// Throws Refused.
void make_kernel_unit(const Job& job, const Kernel& kernel);

// These make such units of HIP sources that clang compiles.
void make_hip_host_unit(const Job& job, const std::string& id, TableIn place);
void make_hip_kernel_unit(const Job& job, const Kernel& kernel);
// Makes the object that the command makes, with equal contents. Host code and device code are
// compiled at the same time, and the device code is put into the host's object afterwards.
void make_hip_object(const Job& job);
// Asks whether that object exists already (see asking.h), and makes nothing.
void ask_for_hip_object(const Job& job);

}  // namespace lazyck::units
