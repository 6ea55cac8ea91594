// What a unit's PTX says of its kernels and variables.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>

namespace lazyck::units {

struct Ptx {
    std::map<std::string, std::string> entries;  // kernel → its parameters without their names
    std::set<std::string> uninitialized;         // variables of the module
    std::set<std::string> initialized;
    std::map<std::string, std::set<std::string>> names;  // what each function, kernel and variable refers to

    // The variables of the module that `kernel` can reach.
    std::set<std::string> variables_of(const std::string& kernel) const;
};

Ptx read_ptx(std::string_view text);

}  // namespace lazyck::units
