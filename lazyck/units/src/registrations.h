// What the host code of a source registers with the GPU runtime, by the stubs that the compiler wrote for it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lazyck::units {

struct Registrations {
    struct Kernel {
        std::string symbol;    // in device code
        std::string spelling;  // by which its own source can name it: `ns::kernel<float, 3>`
        std::string type;      // of a pointer to it
    };
    struct Variable {
        std::string symbol;
        std::string spelling;
    };
    std::vector<Kernel> kernels;
    std::vector<Variable> variables;
};

// Of a file `*.cudafe1.stub.c`.
Registrations read_stubs(std::string_view text);

}  // namespace lazyck::units
