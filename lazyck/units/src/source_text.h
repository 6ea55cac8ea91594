// Preprocessed C++ taken apart as far as units need it: where functions are defined, and which of them are kernels.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace lazyck::units {

// A definition of a function in a preprocessed text: `body` is where its `{` stands, or the `:` before what it
// initializes; `end` is behind its `}`. An explicit instantiation (`template void f<int>(int);`, of a class, too, and
// with `extern`) is all body. What a class declares without defining it has none: both are behind its `;`.
struct Definition {
    std::string_view name;  // the last one before the parameters, without namespaces and template arguments
    std::size_t begin = 0, body = 0, end = 0;
    bool is_kernel = false;
    bool is_device = false;    // it may be called from device code
    bool is_host = false;      // said where is_device is said, too
    bool is_constant = false;  // constexpr or consteval: device code may evaluate it
    bool is_deduced = false;   // its body says what it returns
    bool is_virtual = false;
    bool is_template = false;  // or a member of one
    bool is_in_class = false;
    // Its class is the same without it to all who do not mention its name, as they do that of a constructor or a
    // destructor with the class's own; of a virtual function that is not so.
    bool is_optional = false;
    bool is_instantiation = false;
    bool is_specialization = false;  // an explicit one
    bool is_qualified = false;       // as `Class::f`, which was declared before
    bool has_attributes = false;     // more than those that say where it runs
    bool is_own = false;             // it stands in the source itself rather than in a header
    std::size_t declaration = 0;     // the index of that in a namespace which it is, or is a part of
};

// A declaration in a namespace, of whatever kind.
struct Declared {
    std::vector<std::string_view> names;  // none where these are not known, as of operators
    std::size_t begin = 0, end = 0;
    bool is_device_variable = false;  // in the device's memory, or a template of such
    bool is_enum = false;
    bool is_template = false;
    bool is_own = false;   // it stands in the source itself
    bool is_made = false;  // the compiler makes code or data of it, whether somebody uses it or not
};

struct Definitions {
    std::vector<Definition> functions;
    std::vector<Declared> all;
};

// The functions that are defined in namespaces and that stand in classes, and all that namespaces declare. What is not
// understood is left out: that costs the time to compile it.
Definitions find_definitions(std::string_view text, std::string_view source);

// Whether nothing but running it needs the body.
bool is_body_alone(const Definition& d);

// Has the whole definition cut where `is_taken_out` is true of one whose class has declared it: it cannot be declared
// again outside of that.
void widen(std::vector<Definition>& functions, const std::function<bool(const Definition&)>& is_taken_out);

// What stands for a declaration of which nothing is left. Preprocessors leave no comments.
constexpr std::string_view k_left_out = ";/*lazyck*/";

// A part of a text that is left out, and what stands there instead.
struct Cut {
    std::size_t begin = 0, end = 0;
    std::string_view instead;
};

// A cut of the body of each definition that has a replacement.
std::vector<Cut> cuts_of(const std::vector<Definition>& definitions,
                         const std::function<std::string_view(const Definition&)>& replacement);

// `text` without `cuts`, which come in the text's order; it has as many lines.
std::string with_cuts(std::string_view text, const std::vector<Cut>& cuts);

}  // namespace lazyck::units
