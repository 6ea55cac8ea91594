// Reads what nvcc's front ends write of a source: its registrations, and its PTX.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace lazyck::units {

// What the host code of a source registers with the GPU runtime.
struct Registrations {
    struct Kernel {
        std::string symbol;    // its name in device code
        std::string spelling;  // how its own source can name it: `ns::kernel<float, 3>`
        std::string type;      // the type of a pointer to it
    };
    std::vector<Kernel> kernels;
    std::vector<std::string> variables;  // their symbols
};

// Reads it from the stubs that the compiler wrote: the text of a file `*.cudafe1.stub.c`.
Registrations read_stubs(std::string_view text);

// What a unit's PTX says about its kernels and variables.
struct Ptx {
    std::map<std::string, std::string> entries;  // kernel → its parameters, without their names
    std::set<std::string> uninitialized;         // variables of the module
    std::set<std::string> initialized;
    std::set<std::string> functions;                     // those with a body that are not kernels
    std::map<std::string, std::set<std::string>> names;  // what each function, kernel and variable refers to

    std::set<std::string> reached_by(const std::string& kernel) const;
};

Ptx read_ptx(std::string_view text);

}  // namespace lazyck::units
