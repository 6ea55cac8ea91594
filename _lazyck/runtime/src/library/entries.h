// Gets the entry of a blob for this process: from a cache, or else by one thread that compiles it
// while the others wait.
#pragma once

#include <memory>

#include "library/core.h"

namespace lazyck::rt {

// Returns what this process or a cache has, or null if it must be compiled, or another thread is
// getting it. With `may_go_by_kernel`, the host unit of the blob will do. Throws CompileError.
std::shared_ptr<const Entry> find_entry(Core& core, BlobId blob, const Strings& archs, bool may_go_by_kernel);

// Returns the entry. If it must be compiled, one thread at a time does so. The threads that waited
// share the result, even a failure, since they asked for the same attempt. The next call makes a
// new attempt, unless the compiler would fail in the same way again. Throws CompileError.
//
// While a thread compiles, it holds what others wait for: the blob and, within the store, locks and
// permits of the host. A waiting thread may hold the dynamic loader's lock (an initializer calls a
// blob) or a lock of the program. So the compiling thread calls neither the loader, nor the C
// library's name services or locale, nor the program's code.
std::shared_ptr<const Entry> obtain_entry(Core& core, BlobId blob, const Strings& archs, bool may_go_by_kernel);

// Returns whether a cache has the entry.
bool is_entry_cached(Core& core, BlobId blob, const Strings& archs, bool may_go_by_kernel);

}  // namespace lazyck::rt
