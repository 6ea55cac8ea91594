// What the host code of a source registers with the GPU runtime, read from the stubs that the
// compiler wrote.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lazyck::units {

struct Registrations {
    struct Kernel {
        std::string symbol;    // its name in device code
        std::string spelling;  // how its own source can name it: `ns::kernel<float, 3>`
        std::string type;      // the type of a pointer to it
    };
    struct Variable {
        std::string symbol;
        std::string spelling;
    };
    std::vector<Kernel> kernels;
    std::vector<Variable> variables;
};

// Reads the text of a file `*.cudafe1.stub.c`.
Registrations read_stubs(std::string_view text);

}  // namespace lazyck::units
