// The fat binaries and kernels that libraries of the real compiler registered: which archs hold code for a kernel.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace fake_rocm {

// The targets ("gfx942", "gfx90a:xnack-") in an offload bundle. False: not a bundle. A compressed one cannot be looked
// into and counts as holding every target.
struct CodeTargets {
    std::vector<std::string> m_targets;
    bool m_any = false;

    bool holds(const std::string& device) const;
};
bool read_code_targets(const void* image, CodeTargets* targets);

// A kernel or a variable.
struct Registered {
    std::string m_name;
    const void* m_module;
};

// An image: what it holds, and the library in it, if this home's hipcc made it; loaded when it is first asked for.
struct Module {
    CodeTargets m_targets;
    std::string_view m_library;
    void* m_loaded = nullptr;
};

class Registry {
 public:
    const void* add_module(const void* wrapper);
    void remove_module(const void* module);
    void add_kernel(const void* module, const void* host_function, const char* name);
    bool find_kernel(const void* host_function, std::string* name, CodeTargets* targets);
    void add_variable(const void* module, const void* handle, const char* name);
    // Where the kernel or variable of a handle is: in an image of this home's, or at the handle itself. nullptr: its
    // image does not have it.
    void* find_code(const void* handle);
    void* find_variable(const void* handle);

 private:
    void* find_in_image(const std::map<const void*, Registered>& all, const void* handle, const char* suffix);
    void* loaded_once(const void* key);

    std::mutex m_loading;  // taken before the other
    std::mutex m_mutex;
    std::map<const void*, Module> m_modules;
    std::map<const void*, Registered> m_kernels;
    std::map<const void*, Registered> m_variables;
};

Registry& registry();

}  // namespace fake_rocm
