#include "places.h"

#include "files.h"

namespace lazyck::rt {

std::string bundle_root(const std::string& given, const std::string& baked, const std::string& library) {
    if (!given.empty()) return given;
    const std::string directory = directory_of(library);
    if (!baked.empty()) {
        const std::string root = baked[0] == '/' ? baked : directory + "/" + baked;
        if (is_directory(root)) return root;
    }
    return directory + "/lazyck";
}

}  // namespace lazyck::rt
