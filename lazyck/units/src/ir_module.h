// A module of LLVM IR, as text, taken apart: what it defines, and which definitions refer to which.
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
    // `text` has to outlive this. It is as a compiler writes it: one line for everything but a function's body.
    explicit IrModule(std::string_view text);

    // A kernel that is defined here.
    bool has_kernel(const std::string& name) const;
    // A variable that `kernel` can reach and that is more than a constant of its own code: other kernels may change it,
    // and the host. "" where there is none.
    std::string state_of(const std::string& kernel) const;
    // The functions that `kernel` reaches, that others of the module's kernels reach too, and that have more than
    // `size` lines with all that they call.
    std::set<std::string> shared_functions(const std::string& kernel, std::size_t size) const;
    // The module with `kernel` and what that can reach alone.
    std::string only(const std::string& kernel) const;

 private:
    struct Entity {
        std::string_view text;
        std::set<std::string_view> uses;
        std::vector<std::string_view> calls;  // each use within a function's body
        std::size_t size = 0;                 // in lines of a function's body
        bool is_function = false, is_kernel = false, is_constant = false, is_shared_memory = false;
    };

    std::set<std::string_view> reached_from(std::string_view name) const;
    std::size_t size_of(std::string_view name, std::map<std::string_view, std::size_t>& known) const;

    struct Line {
        std::string_view name;  // of what it defines or declares, or ""
        std::string_view text;
    };
    std::vector<Line> m_lines;  // all of the text; a function is one
    std::map<std::string_view, Entity> m_entities;
    std::set<std::string_view> m_seen_by_host;  // variables
};

}  // namespace lazyck::units
