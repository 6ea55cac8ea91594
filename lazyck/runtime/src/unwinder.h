// Exceptions between a lazy library and its blobs where these have unwinders of their own.
#pragma once

namespace lazyck::rt {

// Makes this library's unwinder and that of the blob behind `handle` ready for each other's exceptions.
void introduce_unwinders(void* handle);

}  // namespace lazyck::rt
