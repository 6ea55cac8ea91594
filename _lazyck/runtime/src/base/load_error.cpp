#include "base/load_error.h"

#include <cxxabi.h>

#include <cstdlib>
#include <memory>

namespace lazyck::rt {

namespace {

constexpr char k_undefined[] = "undefined symbol: ";

}  // namespace

std::string readable(const std::string& symbol) {
    int status = 0;
    const std::unique_ptr<char, decltype(&std::free)> name(
        abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status), &std::free);
    return status == 0 && name ? std::string(name.get()) + " [" + symbol + "]" : symbol;
}

std::string explain_load_error(const std::string& reason, const std::string& library) {
    const std::size_t at = reason.find(k_undefined);
    if (at == std::string::npos) return reason;
    const std::size_t begin = at + sizeof k_undefined - 1;
    const std::string symbol = reason.substr(begin, reason.find_first_of(" ,\n", begin) - begin);
    return "it needs " + readable(symbol) + ", which neither " + library +
           " nor any library that it depends on exports. Export it there (default visibility, no `local:` in a version"
           " script, no --exclude-libs), link the library that has it with -Wl,--no-as-needed, or keep the blob out of"
           " --blobs, and build again\n  (" +
           reason + ")";
}

}  // namespace lazyck::rt
