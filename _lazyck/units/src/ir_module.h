// Splits a module of LLVM IR, as text: what it defines, and which definitions refer to which.
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace lazyck::units {

class IrModule {
 public:
    // `text` has to outlive this. It has the form that compilers write: each entity takes one line,
    // except for the body of a function.
    explicit IrModule(std::string_view text);

    // Whether the kernel is defined here.
    bool has_kernel(const std::string& name) const;
    // Returns a variable that `kernel` can reach and that is more than a constant of its own code,
    // so that other kernels or the host may change it. The string is empty if there is none.
    std::string state_of(const std::string& kernel) const;
    // Returns the functions that `kernel` reaches, that other kernels of the module reach too, and
    // that have more than `size` lines together with all that they call.
    std::set<std::string> shared_functions(const std::string& kernel, std::size_t size) const;
    // Returns the module with only `kernel` and what that can reach.
    std::string only(const std::string& kernel) const;

 private:
    struct Entity {
        std::set<std::string_view> uses;
        std::vector<std::string_view> calls;  // each use within a function's body
        std::size_t size = 0;                 // in lines of a function's body
        bool is_function = false, is_kernel = false, is_constant = false, is_shared_memory = false;
    };

    std::set<std::string_view> reached_from(std::string_view name) const;
    std::size_t size_of(std::string_view name, std::map<std::string_view, std::size_t>& known) const;

    struct Line {
        std::string_view name;  // of what it defines or declares; empty for other lines
        std::string_view text;
    };
    std::vector<Line> m_lines;  // all of the text; a function's definition is one element
    std::map<std::string_view, Entity> m_entities;
    std::set<std::string_view> m_seen_by_host;  // the variables in llvm.used and llvm.compiler.used
};

}  // namespace lazyck::units
