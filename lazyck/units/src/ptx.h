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
    std::set<std::string> functions;                     // that have bodies and are no kernels
    std::map<std::string, std::set<std::string>> names;  // what each function, kernel and variable refers to

    // All names that `kernel` can reach.
    std::set<std::string> reached_by(const std::string& kernel) const;
};

Ptx read_ptx(std::string_view text);

}  // namespace lazyck::units
