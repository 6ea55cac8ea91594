// The allocations there are, so that copies can be checked and pointers asked about.
#pragma once

#include <hip/hip_runtime_api.h>

#include <map>
#include <mutex>

namespace fake_rocm {

enum class MemoryKind { Device, Host, Managed, Registered };

struct Allocation {
    char* m_base;
    size_t m_bytes;
    MemoryKind m_kind;
    int m_device;
    unsigned int m_flags;
    void* m_block;  // what free() takes; nullptr where the user owns the memory
};

class AllocationTable {
 public:
    // nullptr: out of memory, the host's or the device's.
    void* allocate(size_t bytes, MemoryKind kind, unsigned int flags);
    bool adopt(void* pointer, size_t bytes, unsigned int flags);
    // False where `pointer` does not start an allocation of one of the two kinds.
    bool release(void* pointer, MemoryKind kind, MemoryKind other);
    // The allocation that holds the address; false: none does.
    bool find(const void* address, Allocation* found);
    size_t bytes_on(int device);

 private:
    std::mutex m_mutex;
    std::map<char*, Allocation> m_allocations;
};

AllocationTable& allocations();

}  // namespace fake_rocm
