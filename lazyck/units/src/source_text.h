// Reads preprocessed C++ as far as units need it (where functions are defined, which of them are
// kernels, and which parts mention which), and leaves parts of it out. Names alone decide what is
// mentioned: everything that has a mentioned name counts.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace lazyck::units {

// A definition of a function in a preprocessed text. `body` is the offset of its `{`, or of the `:`
// before its member initializers; `end` is the offset behind its `}`. An explicit instantiation
// (`template void f<int>(int);`, also of a class or with `extern`) consists of a body only. What a
// class declares without defining it has no body: `body` and `end` are both behind its `;`.
struct Definition {
    std::string_view name;  // the last one before the parameters, without namespaces and template arguments
    std::size_t begin = 0, body = 0, end = 0;
    bool is_kernel = false;
    bool is_device = false;    // it says `__device__`
    bool is_reached = false;   // device code may call it: a declaration of its name says `__device__`
    bool is_host = false;      // it says `__host__`; a function with neither mark is host code too
    bool is_constant = false;  // constexpr or consteval: device code may evaluate it
    bool is_deduced = false;   // its return type follows from its body
    bool is_virtual = false;
    bool is_template = false;  // it is a template, or a member of one
    bool is_in_class = false;
    // Its class stays the same without it for all code that does not mention its name. A
    // constructor or a destructor is mentioned by the name of the class. A virtual function is
    // never optional.
    bool is_optional = false;
    bool is_instantiation = false;
    bool is_specialization = false;  // an explicit one
    bool is_qualified = false;       // written as `Class::f`, which was declared before
    bool has_attributes = false;     // more than those that say where it runs
    bool is_own = false;             // it stands in the source itself rather than in a header
    std::size_t declaration = 0;     // index of the namespace-level declaration that it is, or is part of
};

struct Declared {
    std::vector<std::string_view> names;  // empty if they are not known, as for operators
    std::size_t begin = 0, end = 0;
    bool is_device_variable = false;  // it is in the device's memory, or a template of such variables
    bool is_enum = false;
    bool is_template = false;
    bool is_own = false;   // it stands in the source itself
    bool is_made = false;  // the compiler makes code or data of it even if it is unused
};

struct Definitions {
    std::vector<Definition> functions;
    std::vector<Declared> all;
};

// Finds the functions that are defined in namespaces or stand in classes, and all declarations in
// namespaces. What is not understood is not reported; it only costs compile time.
Definitions find_definitions(std::string_view text, std::string_view source);

// Whether the body is needed only to run the function.
bool is_body_alone(const Definition& d);

// Stands in place of a declaration that is left out. Preprocessed text has no other comments.
constexpr std::string_view k_left_out = ";/*lazyck*/";

// Returns what stands in place of a function's body, or an empty string if the body stays. A `;`
// also takes the place of the head of a function that its class has declared: it cannot be declared
// again outside of the class.
using Replacement = std::function<std::string_view(const Definition&)>;

// Returns `text` with these replacements. The lines that remain keep their numbers.
std::string with_replacements(std::string_view text, const Definitions& found, const Replacement& replacement);

// Returns `text` with these replacements, and without what the declarations `roots` and the text
// `more` do not need: they need what they mention, directly or by way of other mentions. What has
// no name is always needed. What is replaced mentions nothing. An optional function mentions
// nothing as long as nothing mentions its name. Of the functions, only the optional ones are left
// out.
std::string with_needed_parts(std::string_view text, const Definitions& found, const Replacement& replacement,
                              const std::vector<bool>& roots, std::string_view more);

// Some of the declarations and functions of a text.
struct Parts {
    std::vector<bool> declarations;
    std::vector<bool> functions;
};

// Returns what may need one of `names`: what mentions the name, directly or by way of other
// declarations and functions. A class counts without its functions.
Parts that_reach(std::string_view text, const Definitions& found, std::vector<std::string_view> names);

}  // namespace lazyck::units
