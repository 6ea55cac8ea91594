// Keeps track of allocations, so that copies can be checked and pointers looked up.
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
    // Returns nullptr if the host or the device is out of memory.
    void* allocate(size_t bytes, MemoryKind kind, unsigned int flags);
    bool adopt(void* pointer, size_t bytes, unsigned int flags);
    // Returns false if `pointer` does not start an allocation of one of the two kinds.
    bool release(void* pointer, MemoryKind kind, MemoryKind other);
    // Finds the allocation that holds the address; returns false if there is none.
    bool find(const void* address, Allocation* found);
    size_t bytes_on(int device);

 private:
    std::mutex m_mutex;
    std::map<char*, Allocation> m_allocations;
};

AllocationTable& allocations();

}  // namespace fake_rocm
