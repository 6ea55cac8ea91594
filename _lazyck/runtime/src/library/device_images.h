// Joins images of device code that are for one arch each. A GPU runtime is given one image for a
// kernel, and takes the code of each of its devices from there.
#pragma once

#include <vector>

namespace lazyck::rt {

// Returns an image with the code of all `images`, each of which is a fat binary of CUDA or an
// offload bundle of clang. It stays for as long as the process lives, as a GPU runtime reads it at
// any time. Throws CompileError if the images are not all of one of these forms.
const void* join_images(const std::vector<const void*>& images);

}  // namespace lazyck::rt
