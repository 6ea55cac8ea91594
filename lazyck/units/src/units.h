// A source taken apart: the object of its host code, and the device code of one kernel or of all.
#pragma once

#include <string>

#include "steps.h"

namespace lazyck::units {

// A kernel as the host code of its source registers it: fields of a line, separated by tabs. All kernels of the source,
// if its symbol is `*`.
struct Kernel {
    std::string symbol, parameters, spelling, type;
    std::vector<std::string> state;  // variables of the source that are more than constants

    std::vector<std::string> words() const;
};

// Throws std::runtime_error for a line that is none.
Kernel kernel_of(const std::string& line);

struct Job {
    Words command;          // nvcc's, from one source to one object
    std::string source;     // as the command names it
    std::string directory;  // for what steps leave
    std::string output;
    int asker = -1;  // a socket on which somebody may know what would be made: see asking.h
};

// What makes names of the source's own unique in the host unit `id` of a job, and in any device code.
std::string module_id_of(const Job& job, const std::string& id);
std::string device_module_id();

// Where a host unit has its table: in its section .lazyck.kernels, which a link leaves out, or behind its name.
enum class TableIn { section, data };

// Makes the object of the host code, with the name `id` in the place of device code, and with the table of what it
// registers. With the table in its data, also the file `<output>.cost`: a line "host <CPU seconds> <of these, to read
// the device's text> <what reading all of that takes> <kernels>". Throws Refused.
void make_host_unit(const Job& job, const std::string& id, TableIn place);

// Makes a library with the device code of `kernel`, or, where it cannot be had by itself, one that says so; and the
// file `<output>.cost`: a line "kernel <CPU seconds>", "alone <CPU seconds> <of these, to read the device's text>"
// where that was all of the text, "refused <CPU seconds>", or "whole <CPU seconds>" for the device code of all. Throws
// Refused.
void make_kernel_unit(const Job& job, const Kernel& kernel);

}  // namespace lazyck::units
