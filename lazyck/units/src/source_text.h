// Preprocessed C++ taken apart as far as units need it: where functions are defined, and which of them are kernels.
#pragma once

#include <cstddef>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace lazyck::units {

// A definition of a function in a preprocessed text: `body` is where its `{` stands, or the `:` before what it
// initializes; `end` is behind its `}`. An explicit instantiation (`template void f<int>(int);`, of a class, too, and
// with `extern`) is all body.
struct Definition {
    std::string_view name;  // the last one before the parameters, without namespaces and template arguments
    std::size_t begin = 0, body = 0, end = 0;
    bool is_kernel = false;
    bool is_device = false;    // it may be called from device code
    bool is_constant = false;  // constexpr or consteval: device code may evaluate it
    bool is_deduced = false;   // its body says what it returns
    bool is_virtual = false;
    bool is_template = false;
    bool is_instantiation = false;
    bool is_specialization = false;  // an explicit one
    bool is_qualified = false;       // as `Class::f`, which was declared before
    bool has_attributes = false;     // more than those that say where it runs
    bool is_own = false;             // it stands in the source itself rather than in a header
    std::size_t declaration = 0;     // the index of that in a namespace which it is, or is a part of
};

// A declaration in a namespace, of whatever kind.
struct Declared {
    std::string_view name;
    std::size_t begin = 0, end = 0;
    bool is_device_template = false;  // of variables in the device's memory
};

struct Definitions {
    std::vector<Definition> functions;
    std::vector<Declared> all;
};

// The functions that are defined in namespaces and in classes that are no templates, and all that namespaces declare.
// What is not understood is left out: that costs the time to compile it.
Definitions find_definitions(std::string_view text, std::string_view source);

// Which of `all` may need one of `names`: they mention it, or what mentions it, as often as it takes.
std::vector<bool> that_reach(std::string_view text, const std::vector<Declared>& all, std::set<std::string_view> names);

// `text` with `replacement` in the place of each chosen body, as many lines long.
std::string with_bodies_replaced(std::string_view text, const std::vector<Definition>& definitions,
                                 const std::function<std::string_view(const Definition&)>& replacement);

}  // namespace lazyck::units
