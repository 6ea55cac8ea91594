// Reads what a unit's PTX says about its kernels and variables.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>

namespace lazyck::units {

struct Ptx {
    std::map<std::string, std::string> entries;  // kernel → its parameters, without their names
    std::set<std::string> uninitialized;         // variables of the module
    std::set<std::string> initialized;
    std::set<std::string> functions;                     // those with a body that are not kernels
    std::map<std::string, std::set<std::string>> names;  // what each function, kernel and variable refers to

    // Returns all names that `kernel` can reach.
    std::set<std::string> reached_by(const std::string& kernel) const;
};

Ptx read_ptx(std::string_view text);

}  // namespace lazyck::units
