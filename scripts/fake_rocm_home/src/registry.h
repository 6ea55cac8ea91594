// The fat binaries and kernels that libraries of the real compiler registered: which archs hold code for a kernel.
#pragma once

#include <map>
#include <mutex>
#include <string>
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

struct RegisteredKernel {
    std::string m_name;
    const void* m_module;
};

class Registry {
 public:
    const void* add_module(const void* wrapper);
    void remove_module(const void* module);
    void add_kernel(const void* module, const void* host_function, const char* name);
    bool find_kernel(const void* host_function, std::string* name, CodeTargets* targets);

 private:
    std::mutex m_mutex;
    std::map<const void*, CodeTargets> m_modules;
    std::map<const void*, RegisteredKernel> m_kernels;
};

Registry& registry();

}  // namespace fake_rocm
