// The fat binaries and kernels that libraries have registered: which archs a kernel has code for.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace fake_rocm {

// The targets ("gfx942", "gfx90a:xnack-") in an offload bundle. read_code_targets returns false if
// the image is not a bundle. A compressed bundle cannot be read and counts as holding every target.
struct CodeTargets {
    std::vector<std::string> m_targets;
    bool m_any = false;

    bool holds(const std::string& device) const;
};
bool read_code_targets(const void* image, CodeTargets* targets);

// A registered kernel or variable.
struct Registered {
    std::string m_name;
    const void* m_module;
};

// An image: its targets and, if this home's hipcc made it, the library in it, which is loaded when
// it is first needed.
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
    // Returns where the kernel or variable of a handle is: in an image of this home, or at the
    // handle itself. Returns nullptr if its image does not have it.
    void* find_code(const void* handle);
    void* find_variable(const void* handle);

 private:
    void* find_in_image(const std::map<const void*, Registered>& all, const void* handle, const char* suffix);
    void* loaded_once(const void* key);

    std::mutex m_loading;  // locked before m_mutex
    std::mutex m_mutex;
    std::map<const void*, Module> m_modules;
    std::map<const void*, Registered> m_kernels;
    std::map<const void*, Registered> m_variables;
};

Registry& registry();

}  // namespace fake_rocm
