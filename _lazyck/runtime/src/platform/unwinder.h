// Lets exceptions pass between a lazy library and its blobs if these have unwinders of their own.
#pragma once

namespace lazyck::rt {

// Makes the unwinders of this library and of the blob with this `handle` ready for each other's
// exceptions.
void introduce_unwinders(void* handle);

}  // namespace lazyck::rt
